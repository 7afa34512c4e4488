package access

import (
	"context"
	"crypto/rand"

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
