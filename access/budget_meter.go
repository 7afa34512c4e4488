package access

import (
	"context"
	"crypto/rand"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// Charger reserves and spends the budgets of keys, as [Keys.Charge] does. Its methods are
// safe for concurrent use.
type Charger interface {
	Charge(ctx context.Context, c Charge) (Charged, error)
}

const (
	// settleWait is how long a request waits for room that running calls have reserved and
	// may give back, and settleRetry how often it asks.
	settleWait  = 250 * time.Millisecond
	settleRetry = 50 * time.Millisecond
	renewal     = leaseLife / 4
	chargeLimit = 10 * time.Second // of one charge
	chargeRetry = time.Second      // after one that failed
)

// Meter reserves what requests may use of the budgets of their keys. The requests of one
// key share a lease: whatever has come and gone while one charge was on its way is in the
// next one. It is safe for concurrent use.
type Meter struct {
	charger Charger

	mu       sync.Mutex
	closed   bool
	accounts map[string]*account
	group    sync.WaitGroup // of the accounts' goroutines
}

// NewMeter returns a meter. Close it.
func NewMeter(charger Charger) *Meter {
	return &Meter{charger: charger, accounts: map[string]*account{}}
}

// account is what the requests of one key use. The meter's lock guards it; its goroutine
// exists from the first request until all are settled.
type account struct {
	meter  *Meter
	keyID  string
	cancel context.CancelFunc // ends the goroutine
	wake   chan struct{}      // has room for one
	needs  []*need            // that wait, in the order of their arrival

	holder          string // of the lease
	sequence, known int64
	spent, reserved Amounts
	unsaid          bool // something has changed since the last charge
	// budgets are those that the last charge has told, of the key and of its project.
	budgets []AccountBudget
}

// need is a request that waits for its reservation.
type need struct {
	amounts Amounts
	until   time.Time // when it is refused
	left    bool      // nobody waits for it any more
	done    chan struct{}
	// Once done is closed:
	got *Reservation
	err error
}

// Reservation is what a request may use. A nil one is that of a key without limits.
type Reservation struct {
	account *account
	holder  string
	amounts Amounts
	settled bool
}

// Reserve reserves what a request of a key may use at most. The error is a *BudgetError if
// there is no room for it, and another one if that cannot be found out. It waits a moment for
// running requests to give room back.
func (m *Meter) Reserve(ctx context.Context, caller *Caller, amounts Amounts) (*Reservation, error) {
	return m.reserve(ctx, caller, amounts, settleWait)
}

// TryReserve is Reserve without the wait.
func (m *Meter) TryReserve(ctx context.Context, caller *Caller, amounts Amounts) (*Reservation, error) {
	return m.reserve(ctx, caller, amounts, 0)
}

// tightShare is the part of what is left of a budget above which a need is Tight.
const tightShare = 16

// Tight reports whether a need is much of what is left of the caller's budget, as far as that
// is known here, so that it is worth to find out what is needed exactly. It is not where there is
// no room even for the least that will be needed.
func (m *Meter) Tight(caller *Caller, need, least Amounts) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.accounts[caller.account()]
	if a == nil {
		return false
	}
	for _, p := range need.parts() { // so many of it would not fit together
		*p.value = min(*p.value, math.MaxInt64/tightShare) * tightShare
	}
	need.Calls = 0
	lack := func(need Amounts) bool {
		return slices.ContainsFunc(a.budgets, func(b AccountBudget) bool { return b.lacking(need) >= 0 })
	}
	return lack(need) && !lack(least)
}

func (m *Meter) reserve(ctx context.Context, caller *Caller, amounts Amounts, patience time.Duration) (*Reservation, error) {
	if !caller.Limited() {
		return nil, nil
	}
	id := caller.account()
	n := &need{amounts: amounts, until: time.Now().Add(patience), done: make(chan struct{})}
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
	a.notify()
	select {
	case <-n.done:
		return n.got, n.err
	case <-ctx.Done():
	}
	m.mu.Lock()
	n.left = true // a charge that is on its way finds it so
	a.needs = slices.DeleteFunc(a.needs, func(other *need) bool { return other == n })
	m.mu.Unlock()
	n.got.Settle(Amounts{})
	return nil, context.Cause(ctx)
}

// Settle spends what has been used, and returns the rest. It may be more than was reserved:
// the limit may then be passed by the difference. Only the first call counts.
func (r *Reservation) Settle(used Amounts) {
	if r == nil {
		return
	}
	a := r.account
	a.meter.mu.Lock()
	if !r.settled && r.holder == a.holder { // what a lost lease had reserved is spent
		used.Calls = 0
		a.reserved.subtract(r.amounts)
		a.spent.add(used)
		a.unsaid = true
	}
	r.settled = true
	a.meter.mu.Unlock()
	a.notify()
}

// SettleAll spends all that was reserved: nobody knows what has been used.
func (r *Reservation) SettleAll() {
	if r != nil {
		r.Settle(r.amounts)
	}
}

// Close ends the leases, once all requests are settled; there must be no later ones. What
// cannot be told before ctx ends counts as spent, when the lease has expired.
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
		return agl.Errorf(agl.CodeUnavailable, "the budgets of %d keys could not be settled, so that what was reserved counts as spent: %w", n, context.Cause(ctx))
	}
	return nil
}

func (a *account) notify() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run charges until everything is settled and told, or until it is cancelled.
func (a *account) run(ctx context.Context) {
	defer a.cancel()
	for {
		wait, done := a.charge(ctx)
		if done {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-a.wake:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			a.meter.mu.Lock()
			defer a.meter.mu.Unlock()
			a.answerAll(a.needs, agl.Errorf(agl.CodeUnavailable, "the server is shutting down"))
			return
		}
		timer.Stop()
	}
}

// charge sends one charge, if there is something to tell or to ask for. It returns how long
// to wait for more, or that nothing is left.
func (a *account) charge(ctx context.Context) (wait time.Duration, done bool) {
	m := a.meter
	m.mu.Lock()
	asked := slices.Clone(a.needs[:min(len(a.needs), MaxNeeds)])
	a.sequence++
	c := Charge{KeyID: a.keyID, Holder: a.holder, Sequence: a.sequence, Known: a.known, Spent: a.spent, Reserved: a.reserved, Needs: make([]Amounts, len(asked))}
	for i, n := range asked {
		c.Needs[i] = n.amounts
	}
	c.End = len(asked) == 0 && a.reserved == Amounts{}
	a.unsaid = false
	m.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, chargeLimit)
	answer, err := m.charger.Charge(ctx, c)
	cancel()

	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil:
		a.unsaid = true
		a.answerAll(asked, err)
		// Nothing was ever granted, and the charge has certainly not been executed.
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
	case a.unsaid, len(a.needs) > len(asked):
		return 0, false
	case len(a.needs) > 0:
		return settleRetry, false
	case a.reserved == Amounts{}:
		return 0, false
	default:
		return renewal, false
	}
}

// apply gives the requests that were asked for what they were granted, and refuses those
// for which there will be no room soon.
func (a *account) apply(asked []*need, answer *Charged) {
	now := time.Now()
	for i, n := range asked {
		granted := i < len(answer.Granted) && answer.Granted[i]
		switch {
		case n.left:
			a.unsaid = a.unsaid || granted // the next charge gives it back
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

// soon reports whether a refusal may not last, because running calls may give room back.
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
