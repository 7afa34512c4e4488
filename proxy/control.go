package proxy

import (
	"container/list"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
)

// Control is what calls of a rollout may and may not. The zero value changes
// and bounds nothing.
type Control struct {
	// Force are members that every request body gets, whatever the agent sent.
	Force jsontext.Value `json:"force,omitzero"`
	// Default are members that a request body gets where the agent sent none, or
	// null.
	Default jsontext.Value `json:"default,omitzero"`
	// Forbid names members of request bodies; a call that has one is refused with
	// 400, unless it is null.
	Forbid []string `json:"forbid,omitzero"`
	// Budget bounds what each attempt uses.
	Budget Budget `json:"budget,omitzero"`
}

// Budget bounds the calls of one attempt; a retried rollout begins anew. What
// is zero is not bounded. A call that runs when the time is over is cancelled at
// its backend, and so is a stream whose tokens pass the budget; an agent that has
// a part of the reply sees it break off. The tokens of a reply that comes whole
// are known when it has come.
type Budget struct {
	Calls int64 `json:"calls,omitzero"`
	// Tokens counts those of prompts and replies.
	Tokens int64 `json:"tokens,omitzero"`
	// Seconds run from the attempt's first call on.
	Seconds float64 `json:"seconds,omitzero"`
	// Over says what a call gets once the budget is spent.
	Over OverBudget `json:"over,omitzero"`
}

// OverBudget is what a call gets once the budget is spent. Either way the
// header Agl-Outcome says "budget", and so does the record.
type OverBudget string

// The answers to calls over a budget.
const (
	// OverError is an error with status 429, which clients are told not to repeat.
	OverError OverBudget = ""
	// OverLength is an empty reply that ends for its length, so that agents which
	// cannot handle errors end as if the model had run out of tokens.
	OverLength OverBudget = "length"
)

// Validate reports what is wrong with a control: CodeInvalid, naming the field,
// the value and what is allowed.
func (c *Control) Validate() error {
	const field = "control"
	for _, f := range [...]struct {
		name  string
		value jsontext.Value
	}{{"force", c.Force}, {"default", c.Default}} {
		if f.value != nil && !openai.ValidObject(f.value) {
			return agl.Errorf(agl.CodeInvalid, "%s.%s: got %s, must be an object", field, f.name, f.value)
		}
	}
	for i, name := range c.Forbid {
		if name == "" || name == "model" || name == "messages" || name == "stream" {
			return agl.Errorf(agl.CodeInvalid, "%s.forbid[%d]: got %q, must be a sampling parameter", field, i, name)
		}
	}
	b := &c.Budget
	if b.Calls < 0 || b.Tokens < 0 || b.Seconds < 0 {
		return agl.Errorf(agl.CodeInvalid, "%s.budget: got %d calls, %d tokens, %v seconds, none must be negative", field, b.Calls, b.Tokens, b.Seconds)
	}
	if b.Over != OverError && b.Over != OverLength {
		return agl.Errorf(agl.CodeInvalid, "%s.budget.over: got %q, must be empty or %q", field, string(b.Over), OverLength)
	}
	return nil
}

// clone copies what a caller may go on to change.
func (c *Control) clone() *Control {
	copied := *c
	copied.Force, copied.Default, copied.Forbid = c.Force.Clone(), c.Default.Clone(), slices.Clone(c.Forbid)
	return &copied
}

// edits reports whether request bodies are touched.
func (c *Control) edits() bool { return len(c.Force)+len(c.Default)+len(c.Forbid) > 0 }

// apply returns a request body as the control has it: body itself where there
// is nothing to do. A body that is not an object stays as it is.
func (c *Control) apply(body []byte) ([]byte, *failure) {
	var (
		out       = make([]byte, 0, len(body)+len(c.Force)+len(c.Default))
		given     = make(map[string]bool)
		forbidden string
	)
	forced := names(c.Force)
	complete := openai.Members(body, func(name, value []byte) {
		plain := unquoted(name)
		if string(value) != "null" {
			given[plain] = true
			if forbidden == "" && slices.Contains(c.Forbid, plain) {
				forbidden = plain
			}
		}
		if !slices.Contains(forced, plain) {
			out = appendMember(out, name, value)
		}
	})
	if !complete {
		return body, nil
	}
	if forbidden != "" {
		f := fail(http.StatusBadRequest, openai.InvalidRequestError, "parameter_forbidden",
			fmt.Sprintf("the parameter %q may not be set in calls of this rollout", forbidden))
		f.body.Param = forbidden
		return nil, f
	}
	openai.Members(c.Force, func(name, value []byte) { out = appendMember(out, name, value) })
	openai.Members(c.Default, func(name, value []byte) {
		if plain := unquoted(name); !given[plain] && !slices.Contains(forced, plain) {
			out = appendMember(out, name, value)
		}
	})
	if len(out) == 0 {
		return body, nil
	}
	return append(out, '}'), nil
}

// appendMember appends a member to an object that is not closed yet. The name
// is as it is spelled between its quotes.
func appendMember(out, name, value []byte) []byte {
	if len(out) == 0 {
		out = append(out, '{')
	} else {
		out = append(out, ',')
	}
	out = append(out, '"')
	out = append(out, name...)
	out = append(out, `":`...)
	return append(out, value...)
}

// names are the members of an object.
func names(object []byte) []string {
	var list []string
	openai.Members(object, func(name, _ []byte) { list = append(list, unquoted(name)) })
	return list
}

// unquoted is the name that is spelled so between its quotes.
func unquoted(name []byte) string {
	if !slices.Contains(name, '\\') {
		return string(name)
	}
	return unquote([]byte(`"` + string(name) + `"`))
}

const (
	// maxControls bounds the rollouts with a control of their own.
	maxControls = 1 << 18
	// maxSpending bounds the attempts whose use is remembered; the one that has
	// made no call for the longest time is forgotten first.
	maxSpending = 1 << 16
)

// controls are the controls of rollouts and what their attempts have used.
type controls struct {
	mu       sync.Mutex
	base     *Control // of rollouts without one of their own; never changed, only replaced
	own      map[string]*Control
	spending map[[2]string]*spending
	order    list.List // of [2]string, the longest idle in front
}

// spending is what an attempt has used.
type spending struct {
	calls, tokens int64
	first         time.Time
	place         *list.Element
}

func newControls(base Control) *controls {
	return &controls{base: base.clone(), own: make(map[string]*Control), spending: make(map[[2]string]*spending)}
}

// of returns the control of a rollout.
func (s *controls) of(rolloutID string) *Control {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.own[rolloutID]; c != nil {
		return c
	}
	return s.base
}

// spentError says which budget is spent.
type spentError struct{ which string }

func (s *spentError) Error() string { return s.which }

func spentOf(format string, args ...any) *spentError {
	return &spentError{fmt.Sprintf("the attempt's budget of "+format, args...)}
}

func spentOn(tokens, used int64) *spentError {
	return spentOf("%d tokens is spent: it has used %d", tokens, used)
}

// begin counts a call in and returns when its time is over, which is zero if it
// never is. Its error is a *spentError.
func (s *controls) begin(c *call, b *Budget) (over time.Time, err error) {
	if b.Calls == 0 && b.Tokens == 0 && b.Seconds == 0 {
		return over, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [2]string{c.rolloutID, c.attemptID}
	used := s.spending[key]
	if used == nil {
		used = &spending{first: c.start, place: s.order.PushBack(key)}
		s.spending[key] = used
		s.forget()
	}
	s.order.MoveToBack(used.place)
	switch {
	case b.Calls > 0 && used.calls >= b.Calls:
		return over, spentOf("%d calls is spent", b.Calls)
	case b.Tokens > 0 && used.tokens >= b.Tokens:
		return over, spentOn(b.Tokens, used.tokens)
	case b.Seconds > 0 && c.start.Sub(used.first).Seconds() >= b.Seconds:
		return over, spentOf("%v seconds is spent", b.Seconds)
	}
	used.calls++
	if b.Seconds > 0 {
		over = used.first.Add(time.Duration(b.Seconds * float64(time.Second)))
	}
	return over, nil
}

func (s *controls) forget() {
	if s.order.Len() <= maxSpending {
		return
	}
	if key, ok := s.order.Remove(s.order.Front()).([2]string); ok {
		delete(s.spending, key)
	}
}

// charge charges a call with what it has used so far, and returns what its
// attempt has used.
func (s *controls) charge(c *call, tokens int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.spending[[2]string{c.rolloutID, c.attemptID}]
	if used == nil {
		return 0
	}
	used.tokens += tokens - c.charged
	c.charged = tokens
	return used.tokens
}

// end charges the tokens of a call that has ended.
func (s *controls) end(c *call) {
	total := c.usage.total(len(c.request))
	if !c.delivered { // the backend may not have come to say how many
		total = max(total, c.charged)
	}
	if total != c.charged {
		s.charge(c, total)
	}
}

// SetControl says what the calls of a rollout may and may not, from the next
// one on; nil takes it back, to Config.Control. It refuses a control that is
// wrong with CodeInvalid, and one too many with CodeExhausted.
func (p *Proxy) SetControl(rolloutID string, control *Control) error {
	if rolloutID == "" {
		return agl.Errorf(agl.CodeInvalid, "rollout_id: empty, must name a rollout")
	}
	s := p.controls
	if control == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.own, rolloutID)
		return nil
	}
	if err := control.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.own[rolloutID]; !known && len(s.own) >= maxControls {
		return agl.Errorf(agl.CodeExhausted, "%d rollouts have a control of their own already; take back those of finished ones", maxControls)
	}
	s.own[rolloutID] = control.clone()
	return nil
}

// Control returns what the calls of a rollout may and may not.
func (p *Proxy) Control(rolloutID string) Control { return *p.controls.of(rolloutID).clone() }

// Reload replaces the models and [Config.Control] together: what is wrong with
// either (CodeInvalid) leaves both as they were.
func (p *Proxy) Reload(models []Model, control Control) error {
	if err := control.Validate(); err != nil {
		return err
	}
	if err := p.SetModels(models); err != nil {
		return err
	}
	p.controls.setBase(&control)
	return nil
}

// setBase replaces the control of rollouts that have none of their own.
func (s *controls) setBase(base *Control) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = base.clone()
}

// control applies what the call's rollout may and may not to its request.
func (p *Proxy) control(c *call, body []byte) ([]byte, *failure) {
	if c.rolloutID == "" || !generates(c.path) {
		return body, nil
	}
	c.control = p.controls.of(c.rolloutID)
	if !c.control.edits() {
		return body, nil
	}
	edited, f := c.control.apply(body)
	p.hold(c, int64(len(edited)-len(body)))
	return edited, f
}

// generates names the paths whose calls have a model write.
func generates(path string) bool {
	return path == "/chat/completions" || path == "/completions" || path == "/responses" || path == "/messages"
}
