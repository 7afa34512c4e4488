package access

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/agl-go/agl"
)

// Lease is what one request uses of the budget of its key, where the keys are at hand. It
// belongs to one goroutine. A nil one is that of a key without limits.
type Lease struct {
	keys     *Keys
	charge   Charge
	reserved Amounts
}

// Lease returns the lease of a request, which must be ended.
func (k *Keys) Lease(caller *Caller) *Lease {
	if !caller.Limited() {
		return nil
	}
	return &Lease{keys: k, charge: Charge{KeyID: caller.account(), Holder: rand.Text()}}
}

// Reserve reserves more, beside what has been reserved. The error is a *BudgetError if there
// is no room.
func (l *Lease) Reserve(ctx context.Context, amounts Amounts) error {
	if l == nil {
		return nil
	}
	l.charge.Sequence++
	l.charge.Reserved, l.charge.Needs = l.reserved, []Amounts{amounts}
	answer, err := l.keys.Charge(ctx, l.charge)
	if err != nil {
		return err
	}
	l.charge.Known = l.charge.Sequence
	switch {
	case answer.Lost:
		return agl.Errorf(agl.CodeUnavailable, "the request took too long, so that what it had reserved is spent")
	case answer.Granted[0]:
		l.reserved.add(amounts)
		return nil
	}
	return newBudgetError(l.charge.KeyID, &answer, amounts)
}

// End spends all that is reserved, or returns it.
func (l *Lease) End(ctx context.Context, spend bool) error {
	if l == nil || l.charge.Known == 0 {
		return nil
	}
	l.charge.Sequence++
	l.charge.Needs, l.charge.Reserved, l.charge.End = nil, Amounts{}, true
	if spend {
		l.charge.Spent = l.reserved
		l.charge.Spent.Calls = 0
	}
	ctx, cancel := context.WithTimeout(ctx, chargeLimit)
	defer cancel()
	_, err := l.keys.Charge(ctx, l.charge)
	return err
}

// newBudgetError says why a need was not granted.
func newBudgetError(keyID string, answer *Charged, need Amounts) error {
	budget := &answer.AccountBudget
	at := budget.lacking(need)
	if at < 0 && answer.Project != nil {
		keyID, budget = ProjectAccount, answer.Project
		at = budget.lacking(need)
	}
	if at < 0 {
		return agl.Errorf(agl.CodeInternal, "the store refused a reservation for which there is room")
	}
	limit, spent, reserved, want := budget.Limit.parts(), budget.Spent.parts(), budget.Reserved.parts(), need.parts()
	e := &BudgetError{KeyID: keyID, Unit: want[at].unit, Limit: *limit[at].value, Reserved: *reserved[at].value, Need: *want[at].value}
	e.Left = max(e.Limit-*spent[at].value-e.Reserved, 0)
	return e
}

// soon reports whether a refusal may not last, because running calls may give room back.
func soon(err error, until, now time.Time) bool {
	e, ok := err.(*BudgetError) //nolint:errorlint // it comes from newBudgetError
	return ok && e.Fits() && now.Before(until)
}
