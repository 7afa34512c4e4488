package access

import (
	"context"
	"crypto/rand"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
)

// Charger reserves and spends the budgets of keys, as [Keys.Charge] does. Its methods are
// safe for concurrent use.
type Charger interface {
	Charge(ctx context.Context, c Charge) (Charged, error)
}

const (
	// settleWait is how long a request waits for room that running calls have reserved and may return, and
	// settleRetry how often it asks.
	settleWait  = 250 * time.Millisecond
	settleRetry = 50 * time.Millisecond
	renewal     = leaseLife / 4
	chargeLimit = 10 * time.Second // of one charge
	chargeRetry = time.Second      // after a failed one
)

// Meter reserves what requests may use of the budgets of their keys. The requests of one key share a lease: one
// charge reports everything that came and went while the previous charge was in flight. It is safe for concurrent
// use.
type Meter struct {
	charger Charger

	mu       sync.Mutex
	closed   bool
	accounts map[string]*account
	group    sync.WaitGroup // of the accounts' goroutines
}

// NewMeter returns a meter. The caller closes it.
func NewMeter(charger Charger) *Meter {
	return &Meter{charger: charger, accounts: map[string]*account{}}
}

// account is what the requests of one key use. The meter's lock guards it. Its goroutine runs from the first request
// until all are settled.
type account struct {
	meter  *Meter
	keyID  string
	cancel context.CancelFunc // ends the goroutine
	wake   chan struct{}      // has room for one
	needs  []*need            // requests that wait, in the order of arrival

	holder          string // of the lease
	sequence, known int64
	spent, reserved Amounts
	changed         bool // since the last charge
	// budgets are those of the key and of its project, from the answer to the last charge.
	budgets []AccountBudget
}

// need is a request that waits for its reservation.
type need struct {
	amounts Amounts
	until   time.Time // when it is refused if there is no room
	left    bool      // the request is no longer waiting
	done    chan struct{}
	// Set before done is closed:
	got *Reservation
	err error
}

// Reservation is what a request may use. For a key without limits it is nil.
type Reservation struct {
	account *account
	holder  string
	amounts Amounts
	settled bool
}

// Reserve reserves the most that a request of a key may use. It waits a moment for running requests to return some of
// the budget. The error is a *BudgetError if there is no room, and another one if the budget is unknown.
func (m *Meter) Reserve(ctx context.Context, caller *Caller, amounts Amounts) (*Reservation, error) {
	return m.reserve(ctx, caller, amounts, settleWait)
}

// TryReserve is Reserve without the wait.
func (m *Meter) TryReserve(ctx context.Context, caller *Caller, amounts Amounts) (*Reservation, error) {
	return m.reserve(ctx, caller, amounts, 0)
}

// tightShare is the number of times that a need must fit into what is left of a budget, not to be Tight.
const tightShare = 16

// Tight reports whether need is a large part of what is left of the caller's budget, so that it is worth finding out
// the exact need. It is false if the budget is not known here, or if it has no room even for least.
func (m *Meter) Tight(caller *Caller, need, least Amounts) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.accounts[caller.account()]
	if a == nil {
		return false
	}
	for _, p := range need.parts() {
		*p.value = min(*p.value, math.MaxInt64/tightShare) * tightShare
	}
	need.Calls = 0
	lack := func(need Amounts) bool {
		return slices.ContainsFunc(a.budgets, func(b AccountBudget) bool { return b.lacking(need) >= 0 })
	}
	return lack(need) && !lack(least)
}

func (m *Meter) reserve(ctx context.Context, caller *Caller, amounts Amounts, wait time.Duration) (*Reservation, error) {
	if !caller.Limited() {
		return nil, nil
	}
	id := caller.account()
	n := &need{amounts: amounts, until: time.Now().Add(wait), done: make(chan struct{})}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, agl.Errorf(agl.CodeUnavailable, "the server is shutting down")
	}
	a := m.accounts[id]
	if a == nil {
		a = &account{meter: m, keyID: id, wake: make(chan struct{}, 1), holder: rand.Text()}
		m.accounts[id] = a
		life, cancel := context.WithCancel(context.WithoutCancel(ctx))
		a.cancel = cancel
		m.group.Go(func() { a.run(life) })
	}
	a.needs = append(a.needs, n)
	m.mu.Unlock()
	background.Wake(a.wake)
	select {
	case <-n.done:
		return n.got, n.err
	case <-ctx.Done():
	}
	m.mu.Lock()
	n.left = true // for a charge in flight, which may still grant it
	a.needs = slices.DeleteFunc(a.needs, func(other *need) bool { return other == n })
	m.mu.Unlock()
	n.got.Settle(Amounts{})
	return nil, context.Cause(ctx)
}

// Again reserves as much once more and spends it, for a request that is sent again although it may have been executed. It
// is still one running call. With an error nothing is spent.
func (m *Meter) Again(ctx context.Context, caller *Caller, r *Reservation) error {
	if r == nil {
		return nil
	}
	more := r.amounts
	more.Calls = 0
	lost, err := m.Reserve(ctx, caller, more)
	lost.SettleAll()
	return err
}

// Settle spends what was used and returns the rest of the reservation. If more was used than reserved, the budget may
// be exceeded by the difference. Only the first call counts.
func (r *Reservation) Settle(used Amounts) {
	if r == nil {
		return
	}
	a := r.account
	a.meter.mu.Lock()
	if !r.settled && r.holder == a.holder { // reservations of a lost lease are spent already
		used.Calls = 0
		a.reserved.subtract(r.amounts)
		a.spent.add(used)
		a.changed = true
	}
	r.settled = true
	a.meter.mu.Unlock()
	background.Wake(a.wake)
}

// SettleAll spends the whole reservation, for a request whose use is unknown.
func (r *Reservation) SettleAll() {
	if r != nil {
		r.Settle(r.amounts)
	}
}

// Close waits until all requests are settled and ends the leases. No request may follow. What cannot be reported
// before ctx ends counts as spent once the lease has expired.
func (m *Meter) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		m.group.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	for _, a := range m.accounts {
		a.cancel()
	}
	m.mu.Unlock()
	<-idle
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.accounts); n > 0 {
		return agl.Errorf(agl.CodeUnavailable, "the budgets of %d keys could not be settled, so their reservations count as spent: %w", n, context.Cause(ctx))
	}
	return nil
}

// run sends charges until everything is settled and reported, or ctx ends.
func (a *account) run(ctx context.Context) {
	defer a.cancel()
	for {
		wait, done := a.charge(ctx)
		if done {
			return
		}
		select {
		case <-a.wake:
		case <-time.After(wait):
		case <-ctx.Done():
			a.meter.mu.Lock()
			defer a.meter.mu.Unlock()
			a.answerAll(a.needs, agl.Errorf(agl.CodeUnavailable, "the server is shutting down"))
			return
		}
	}
}

// charge sends one charge. It returns how long to wait before the next one, or that nothing is left to report.
func (a *account) charge(ctx context.Context) (wait time.Duration, done bool) {
	m := a.meter
	m.mu.Lock()
	asked := slices.Clone(a.needs[:min(len(a.needs), maxNeeds)])
	a.sequence++
	c := Charge{KeyID: a.keyID, Holder: a.holder, Sequence: a.sequence, Known: a.known, Spent: a.spent, Reserved: a.reserved, Needs: make([]Amounts, len(asked))}
	for i, n := range asked {
		c.Needs[i] = n.amounts
	}
	c.End = len(asked) == 0 && a.reserved == Amounts{}
	a.changed = false
	m.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, chargeLimit)
	defer cancel()
	answer, err := m.charger.Charge(ctx, c)

	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil:
		a.changed = true
		a.answerAll(asked, err)
		// Nothing was ever granted, and this charge was certainly not executed.
		if c.Known == 0 && len(a.needs) == 0 && agl.ErrorCode(err) != agl.CodeUnavailable && ctx.Err() == nil {
			delete(m.accounts, a.keyID)
			return 0, true
		}
		return chargeRetry, false
	case answer.Lost && !c.End || c.End && len(a.needs) > 0:
		a.holder, a.sequence, a.known, a.spent, a.reserved = rand.Text(), 0, 0, Amounts{}, Amounts{}
		return 0, false
	case c.End:
		delete(m.accounts, a.keyID)
		return 0, true
	}
	a.known = c.Sequence
	a.budgets = append(a.budgets[:0], answer.AccountBudget)
	if answer.Project != nil {
		a.budgets = append(a.budgets, *answer.Project)
	}
	a.apply(asked, &answer)
	switch {
	case a.changed, len(a.needs) > len(asked):
		return 0, false
	case len(a.needs) > 0:
		return settleRetry, false
	case a.reserved == Amounts{}:
		return 0, false
	default:
		return renewal, false
	}
}

// apply grants the requests what the answer grants them, and refuses those that will have no room soon.
func (a *account) apply(asked []*need, answer *Charged) {
	now := time.Now()
	for i, n := range asked {
		granted := i < len(answer.Granted) && answer.Granted[i]
		switch {
		case n.left:
			a.changed = a.changed || granted // the next charge returns it
			continue
		case granted:
			a.reserved.add(n.amounts)
			n.answer(&Reservation{account: a, holder: a.holder, amounts: n.amounts}, nil)
			continue
		}
		if err := newBudgetError(a.keyID, answer, n.amounts); !soon(err, n.until, now) {
			n.answer(nil, err)
		}
	}
	a.forgetAnswered()
}

// soon reports whether a refusal may be temporary, because running calls may return some of the budget.
func soon(err error, until, now time.Time) bool {
	e, ok := err.(*BudgetError) //nolint:errorlint // it comes from newBudgetError
	return ok && e.Fits() && now.Before(until)
}

// answer ends the wait of a request.
func (n *need) answer(got *Reservation, err error) {
	n.got, n.err = got, err
	close(n.done)
}

// answerAll ends the wait of requests with an error.
func (a *account) answerAll(asked []*need, err error) {
	for _, n := range asked {
		if !n.left {
			n.answer(nil, err)
		}
	}
	a.forgetAnswered()
}

func (a *account) forgetAnswered() {
	a.needs = slices.DeleteFunc(a.needs, func(n *need) bool { return n.got != nil || n.err != nil })
}
