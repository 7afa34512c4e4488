// Package search finds rollouts of a store by what indexes do not hold: outcomes, versions of models, attributes of spans and the
// text of messages. It reads the rollouts that the store's own filters leave, the newest first, and the spans of their latest
// attempts.
//
// It must not know where a store keeps its data, or who asks.
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

// Params say what to find. All that are set must match.
type Params struct {
	// Filters are those of the store. Its Paging and After are those of the search.
	Filters agl.QueryRolloutsParams
	// OutcomeIn are the kinds of outcomes; nil is any.
	OutcomeIn []agl.OutcomeKind
	// Version is the version of the model, or its name, that answered a call; empty is any.
	Version string
	// Text is in the rollout's input or in one of its messages, in upper or lower case; empty is any.
	Text string
	// Attributes are attributes of spans: each is one of some span, as text, or as JSON spells a number or boolean.
	Attributes []agl.Label
	// After is Result.Next of the search before; empty begins with the newest rollout.
	After string
	Limit int // of the rollouts to return: 1 to MaxLimit, 0 is DefaultLimit
	// Budget is the time after which the search returns what it has; zero is DefaultBudget.
	Budget time.Duration
}

// The limits of a search.
const (
	DefaultLimit  = 50
	MaxLimit      = 1000
	DefaultBudget = 2 * time.Second
	maxText       = 1000 // bytes of what is looked for
)

// Result is what a search has found.
type Result struct {
	Items []agl.AttemptedRollout
	// Next is where another search goes on; empty when all rollouts have been looked at.
	Next string
	// Looked is how many rollouts the search has looked at.
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

// pageSize is how many rollouts are read at once.
const pageSize = 200

// Find searches until it has found Limit rollouts, has looked at all, or Budget is over; it looks at one rollout at least.
func Find(ctx context.Context, store agl.Store, p Params) (Result, error) {
	if err := p.check(); err != nil {
		return Result{}, err
	}
	m := matcher{p, strings.ToLower(p.Text)}
	until := time.Now().Add(cmp.Or(p.Budget, DefaultBudget))
	limit := cmp.Or(p.Limit, DefaultLimit)
	out := Result{Items: []agl.AttemptedRollout{}, Next: p.After}
	query := p.Filters
	query.Paging = agl.Paging{Limit: pageSize, SortBy: "start_time", Order: agl.Descending}
	for {
		query.After = out.Next
		page, err := store.QueryRollouts(ctx, query)
		if err != nil {
			return Result{}, err
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
	for offset := 0; ; offset += most {
		page, err := store.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Paging: agl.Paging{Limit: most, Offset: offset}})
		if errors.Is(err, agl.ErrEvicted) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for i := range page.Items {
			m.look(&page.Items[i], &need)
			if need.met() {
				return true, nil
			}
		}
		if len(page.Items) < most {
			return false, nil
		}
	}
}

// evidence is which conditions have been seen to hold.
type evidence struct {
	version, text bool
	attributes    []bool
}

func (e *evidence) met() bool { return e.version && e.text && !slices.Contains(e.attributes, false) }

// look notes what a span shows.
func (m *matcher) look(s *agl.Span, e *evidence) {
	for name, value := range s.Attributes.All() {
		switch name {
		case agl.AttrModelVersion, agl.AttrModelVersionEnd, agl.AttrGenAIRequestModel:
			e.version = e.version || rawjson.Unquote(value) == m.Version
		}
		for i, a := range m.Attributes {
			if !e.attributes[i] && a.Name == name && a.Value == plain(value) {
				e.attributes[i] = true
			}
		}
		if !e.text && isMessage(name) {
			e.text = m.inText(value)
		}
	}
}

// plain is a value as people write it.
func plain(value jsontext.Value) string {
	if value.Kind() == '"' {
		return rawjson.Unquote(value)
	}
	return string(value)
}

// messagePrefixes are what the names of the attributes with messages begin with.
func messagePrefixes() []string {
	return []string{agl.AttrGenAIPrompt + ".", agl.AttrGenAICompletion + ".", "agentlightning.message.", "exception."}
}

func isMessage(name string) bool {
	return slices.ContainsFunc(messagePrefixes(), func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// inText reports whether the text is in a value: in a string, or in the JSON of anything else.
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
