package access

import (
	"context"
	"crypto/rand"

	"github.com/agl-go/agl"
)

// Lease reserves what one request uses of the budget of its key, in a server that keeps the keys itself. It belongs
// to one goroutine. For a key without limits it is nil.
type Lease struct {
	keys     *Keys
	charge   Charge
	reserved Amounts
}

// Lease returns the lease of a request. The caller ends it.
func (k *Keys) Lease(caller *Caller) *Lease {
	if !caller.Limited() {
		return nil
	}
	return &Lease{keys: k, charge: Charge{KeyID: caller.account(), Holder: rand.Text()}}
}

// Reserve reserves amounts in addition to what is reserved already. The error is a *BudgetError if the budget has no
// room for them.
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
		return agl.Errorf(agl.CodeUnavailable, "the request took longer than its reservation lasts (%v), so its reservation counts as spent", leaseLife)
	case answer.Granted[0]:
		l.reserved.add(amounts)
		return nil
	}
	return newBudgetError(l.charge.KeyID, &answer, amounts)
}

// End spends everything that is reserved, or returns it.
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
