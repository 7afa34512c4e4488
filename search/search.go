// Package search finds rollouts by what no index holds: outcomes, model versions, attributes of spans and the text of
// inputs, messages and exceptions. It reads the rollouts that pass the store's own filters, the newest first, and the spans of their latest
// attempts.
//
//	found, err := search.Find(ctx, store, search.Params{Text: "refund", OutcomeIn: []agl.OutcomeKind{agl.OutcomeAgentError}})
//
// The package must not know where a store keeps its data, or who asks.
package search

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// Params say what to find. All conditions that are set must match.
type Params struct {
	// Filters are the store's own filters. Paging and After in it are ignored.
	Filters agl.QueryRolloutsParams
	// OutcomeIn lists the allowed kinds of outcomes; nil allows any.
	OutcomeIn []agl.OutcomeKind
	// Version is the version, or the name, of a model that answered a call; empty allows any.
	Version string
	// Text must occur in the rollout's input, or in one of its messages or exceptions, in upper or lower case; empty allows any.
	Text string
	// Attributes must each occur in some span. A value is a string, or the JSON of a number or boolean.
	Attributes []agl.Label
	// After is Result.Next of the previous search; empty begins with the newest rollout.
	After string
	Limit int // the most rollouts to return: 1 to MaxLimit, 0 is DefaultLimit
	// TimeLimit is when the search returns what it has found so far; zero is 2 seconds.
	TimeLimit time.Duration
}

// The limits of a search.
const (
	DefaultLimit     = 50
	MaxLimit         = 1000
	defaultTimeLimit = 2 * time.Second
	maxText          = 1000 // bytes of a text to search for
)

// Result is the result of a search.
type Result struct {
	Items []agl.AttemptedRollout
	// Next is where the next search continues; empty when all rollouts have been examined.
	Next string
	// Looked is the number of rollouts that the search has examined.
	Looked int
}

// AppendJSON appends the wire form.
func (r *Result) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.Key("items")
	o = rawjson.AppendList(o, r.Items)
	o.NullString("next", r.Next, r.Next != "")
	o.Int("looked", int64(r.Looked))
	return o.End()
}

// pageSize is the number of rollouts in one query.
const pageSize = 200

// Find searches until it has found Limit rollouts, has examined all, or TimeLimit is over. It examines at least one
// rollout. Params that are out of range are CodeInvalid.
func Find(ctx context.Context, store agl.Store, p Params) (Result, error) {
	if err := p.check(); err != nil {
		return Result{}, err
	}
	m := matcher{p, strings.ToLower(p.Text)}
	until := time.Now().Add(cmp.Or(p.TimeLimit, defaultTimeLimit))
	limit := cmp.Or(p.Limit, DefaultLimit)
	out := Result{Items: []agl.AttemptedRollout{}, Next: p.After}
	query := p.Filters
	query.Paging = agl.Paging{Limit: pageSize, SortBy: "start_time", Order: agl.Descending}
	var last []string // the rollouts of the page before
	for {
		query.After = out.Next
		page, err := store.QueryRollouts(ctx, query)
		if last != nil && agl.ErrorCode(err) == agl.CodeInvalid { // that behind which it goes on was deleted
			switch next, lost := lastOf(ctx, store, last, query.Paging); {
			case lost != nil:
				err = lost
			case next != out.Next:
				out.Next = next
				continue
			}
		}
		if err != nil {
			return Result{}, err
		}
		last = last[:0]
		for i := range page.Items {
			last = append(last, page.Items[i].RolloutID)
		}
		for i := range page.Items {
			if len(out.Items) == limit || out.Looked > 0 && time.Now().After(until) {
				return out, nil
			}
			r := &page.Items[i]
			found, err := m.matches(ctx, store, r)
			if err != nil {
				return Result{}, err
			}
			out.Looked++
			out.Next = r.RolloutID
			if found {
				out.Items = append(out.Items, *r)
			}
		}
		if len(page.Items) == page.Total {
			out.Next = ""
			return out, nil
		}
	}
}

// lastOf returns the last of some rollouts that still exists.
func lastOf(ctx context.Context, store agl.Store, ids []string, order agl.Paging) (string, error) {
	order.Limit = -1
	page, err := store.QueryRollouts(ctx, agl.QueryRolloutsParams{RolloutIDIn: ids, Paging: order})
	switch n := len(page.Items); {
	case err != nil:
		return "", err
	case n == 0:
		return "", agl.Errorf(agl.CodeUnavailable, "the rollouts that were examined last are deleted; search again")
	default:
		return page.Items[n-1].RolloutID, nil
	}
}

func (p *Params) check() error {
	if p.Limit < 0 || p.Limit > MaxLimit {
		return agl.Errorf(agl.CodeInvalid, "limit: got %d, must be 1 to %d", p.Limit, MaxLimit)
	}
	for _, kind := range p.OutcomeIn {
		if !slices.Contains(agl.OutcomeKinds(), kind) {
			return agl.Errorf(agl.CodeInvalid, "outcome_in: got %.100q, must be one of %v", kind, agl.OutcomeKinds())
		}
	}
	for field, text := range map[string]string{"version": p.Version, "text": p.Text} {
		if len(text) > maxText || !utf8.ValidString(text) {
			return agl.Errorf(agl.CodeInvalid, "%s: got %d bytes, must be at most %d bytes of UTF-8", field, len(text), maxText)
		}
	}
	for _, a := range p.Attributes {
		if a.Name == "" || len(a.Name)+len(a.Value) > maxText {
			return agl.Errorf(agl.CodeInvalid, "attribute: got %.100q, must be name=value, at most %d bytes", a, maxText)
		}
	}
	return nil
}

type matcher struct {
	Params

	lower string // Text in lower case
}

func (m *matcher) matches(ctx context.Context, store agl.Store, r *agl.AttemptedRollout) (bool, error) {
	if m.OutcomeIn != nil {
		if r.Attempt == nil {
			return false, nil
		}
		if outcome, ok := r.Attempt.Outcome(); !ok || !slices.Contains(m.OutcomeIn, outcome.Kind) {
			return false, nil
		}
	}
	need := evidence{version: m.Version == "", text: m.Text == "" || m.inText(r.Input), attributes: make([]bool, len(m.Attributes))}
	if need.met() {
		return true, nil
	}
	if r.Attempt == nil {
		return false, nil
	}
	const most = 500
	query := func(ctx context.Context, p agl.Paging) (agl.Page[agl.Span], error) {
		return store.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, AttributeNames: m.names(), Paging: p})
	}
	for span, err := range agl.Pages(ctx, agl.Paging{}, most, query) {
		if errors.Is(err, agl.ErrEvicted) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		m.look(span, &need)
		if need.met() {
			return true, nil
		}
	}
	return false, nil
}

// evidence says which conditions have been found to hold.
type evidence struct {
	version, text bool
	attributes    []bool
}

func (e *evidence) met() bool { return e.version && e.text && !slices.Contains(e.attributes, false) }

// names returns the names of the attributes that look reads.
func (m *matcher) names() []string {
	if len(m.Attributes) > 50 {
		return nil // more than a store takes
	}
	names := []string{agl.AttrModelVersion, agl.AttrModelVersionEnd, agl.AttrGenAIRequestModel}
	for _, a := range m.Attributes {
		names = append(names, a.Name)
	}
	if m.Text != "" {
		for _, prefix := range messagePrefixes() {
			names = append(names, prefix+"*")
		}
	}
	return names
}

// look notes the conditions that a span meets.
func (m *matcher) look(s *agl.Span, e *evidence) {
	for name, value := range s.Attributes.All() {
		switch name {
		case agl.AttrModelVersion, agl.AttrModelVersionEnd, agl.AttrGenAIRequestModel:
			e.version = e.version || rawjson.Unquote(value) == m.Version
		}
		for i, a := range m.Attributes {
			if !e.attributes[i] && a.Name == name && a.Value == rawjson.Text(value) {
				e.attributes[i] = true
			}
		}
		if !e.text && isMessage(name) {
			e.text = m.inText(value)
		}
	}
	for i := range s.Events { // exceptions
		for name, value := range s.Events[i].Attributes.All() {
			e.text = e.text || isMessage(name) && m.inText(value)
		}
	}
}

// messagePrefixes returns the prefixes of the attributes that hold messages and exceptions.
func messagePrefixes() []string {
	return []string{agl.AttrGenAIPrompt + ".", agl.AttrGenAICompletion + ".", "agentlightning.message.", "exception."}
}

func isMessage(name string) bool {
	return slices.ContainsFunc(messagePrefixes(), func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// inText reports whether a value contains the text: a string itself, any other value in its JSON.
func (m *matcher) inText(value jsontext.Value) bool {
	if value.Kind() == '"' {
		return strings.Contains(strings.ToLower(rawjson.Unquote(value)), m.lower)
	}
	if bytes.Contains(bytes.ToLower(value), []byte(m.lower)) {
		return true
	}
	dec := rawjson.NewDecoder(value)
	for {
		token, err := dec.ReadToken()
		if err != nil { // the end
			return false
		}
		if token.Kind() == '"' && strings.Contains(strings.ToLower(token.String()), m.lower) {
			return true
		}
	}
}
