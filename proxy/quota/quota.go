package quota

import (
	"container/list"
	"math"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
)

const (
	// maxControls limits the number of rollouts with a control of their own.
	maxControls = 1 << 18
	// maxAttempts limits the number of attempts whose spending is remembered. The
	// attempt with the oldest last call is forgotten first.
	maxAttempts = 1 << 16
)

// Quota holds the controls of rollouts and the spending of their attempts. It is safe
// for concurrent use.
type Quota struct {
	mu       sync.Mutex
	base     *Control // of rollouts without a control of their own; replaced, never changed
	own      map[string]*Control
	attempts map[[2]string]*spending
	order    list.List // of [2]string, the least recently used in front
}

// spending is what an attempt has spent. The quota's lock guards it.
type spending struct {
	calls, tokens int64
	first         time.Time // when its first call began
	place         *list.Element
}

// New returns a quota. base is the control of rollouts that have none of their own.
func New(base Control) *Quota {
	return &Quota{base: base.clone(), own: make(map[string]*Control), attempts: make(map[[2]string]*spending)}
}

// SetBase replaces the control of rollouts that have none of their own.
func (q *Quota) SetBase(base *Control) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.base = base.clone()
}

// Set gives a rollout a control of its own, for later calls; nil removes it. The error
// is CodeInvalid for an invalid control, and CodeExhausted if there are too many.
func (q *Quota) Set(rolloutID string, control *Control) error {
	if rolloutID == "" {
		return agl.Errorf(agl.CodeInvalid, "rollout_id: empty, must name a rollout")
	}
	if control == nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.own, rolloutID)
		return nil
	}
	if err := control.Validate(); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, known := q.own[rolloutID]; !known && len(q.own) >= maxControls {
		return agl.Errorf(agl.CodeExhausted, "%d rollouts have a control of their own already; remove those of finished ones", maxControls)
	}
	q.own[rolloutID] = control.clone()
	return nil
}

// Get returns a copy of a rollout's control.
func (q *Quota) Get(rolloutID string) Control { return *q.Of(rolloutID).clone() }

// Of returns a rollout's control. The caller must not change it.
func (q *Quota) Of(rolloutID string) *Control {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.own[rolloutID]; c != nil {
		return c
	}
	return q.base
}

// Subject returns the subject to which the rules of an attempt apply, or nil if it has none.
func (q *Quota) Subject(rolloutID, attemptID string) *access.Subject {
	rules := q.Of(rolloutID).Rules
	if rules.None() {
		return nil
	}
	return &access.Subject{ID: rolloutID + "\x00" + attemptID, Name: "the attempt", Rules: rules}
}

// Account charges one call to the budget of its attempt. A nil Account belongs to a call
// without a budget.
type Account struct {
	quota   *Quota
	budget  *Budget
	attempt *spending
	charged int64 // tokens of this call so far
}

// Begin counts a call that begins now. The error is a *SpentError if the budget is spent.
func (q *Quota) Begin(c *Control, rolloutID, attemptID string, now time.Time) (*Account, error) {
	b := &c.Budget
	if b.Calls == 0 && b.Tokens == 0 && b.Seconds == 0 {
		return nil, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	used := q.spendingOf([2]string{rolloutID, attemptID}, now)
	switch {
	case b.Calls > 0 && used.calls >= b.Calls:
		return nil, b.spent("%d calls is spent", b.Calls)
	case b.Tokens > 0 && used.tokens >= b.Tokens:
		return nil, b.tokensSpent(used.tokens)
	case b.Seconds > 0 && now.Sub(used.first).Seconds() >= b.Seconds:
		return nil, b.timeSpent()
	}
	used.calls++
	return &Account{quota: q, budget: b, attempt: used}, nil
}

func (q *Quota) spendingOf(attempt [2]string, now time.Time) *spending {
	used := q.attempts[attempt]
	if used != nil {
		q.order.MoveToBack(used.place)
		return used
	}
	used = &spending{first: now, place: q.order.PushBack(attempt)}
	q.attempts[attempt] = used
	if q.order.Len() > maxAttempts {
		if oldest, ok := q.order.Remove(q.order.Front()).([2]string); ok {
			delete(q.attempts, oldest)
		}
	}
	return used
}

// Deadline returns when the time of the attempt ends, and the error for calls that are
// running then. The error is nil if the time is unlimited.
func (a *Account) Deadline() (at time.Time, spent *SpentError) {
	if a == nil || a.budget.Seconds == 0 {
		return time.Time{}, nil
	}
	const most = math.MaxInt64 / float64(time.Second) / 2 // of a time.Duration, by far
	return a.attempt.first.Add(time.Duration(min(a.budget.Seconds, most) * float64(time.Second))), a.budget.timeSpent()
}

// LimitsTokens reports whether the budget limits tokens, so that they must be counted
// while the call runs.
func (a *Account) LimitsTokens() bool { return a != nil && a.budget.Tokens > 0 }

// Charged returns the tokens that the call has been charged with so far.
func (a *Account) Charged() int64 {
	if a == nil {
		return 0
	}
	return a.charged
}

// Charge sets the tokens that the call has used so far. The error is a *SpentError if
// the attempt has now exceeded its budget.
func (a *Account) Charge(tokens int64) error {
	if a == nil || tokens == a.charged {
		return nil
	}
	a.quota.mu.Lock()
	defer a.quota.mu.Unlock()
	a.attempt.tokens += tokens - a.charged
	a.charged = tokens
	if limit := a.budget.Tokens; limit > 0 && a.attempt.tokens > limit {
		return a.budget.tokensSpent(a.attempt.tokens)
	}
	return nil
}
