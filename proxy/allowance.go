package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy/exchange"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/quota"
	"github.com/agl-go/agl/proxy/upstream"
)

// budgets reserves and spends the budgets of callers: of keys, and of the proxy's project.
type budgets struct {
	meter    *access.Meter         // nil without Config.Budgets
	project  *access.ProjectLimits // nil is none
	upstream *upstream.Pool
}

// of returns the budget of a caller; nil if it has none. A caller without a key of the store
// has the budget of the proxy's project only.
func (b *budgets) of(ctx context.Context, by *access.Caller) exchange.Allowance {
	if by == nil {
		limits, err := b.project.Get(ctx)
		if err != nil {
			return refusedAllowance{err}
		}
		by = &access.Caller{Project: limits}
	}
	if !by.Limited() {
		return nil
	}
	return &allowance{b, *by}
}

// allowance is the budget of a caller.
type allowance struct {
	budgets *budgets
	by      access.Caller
}

// Measured implements [exchange.Allowance].
func (a *allowance) Measured() bool { return a.by.Measured() }

// Reserve implements [exchange.Allowance].
func (a *allowance) Reserve(ctx context.Context, model string, most exchange.Usage, exact func(context.Context) (exchange.Usage, bool)) (exchange.Reserved, error) {
	if a.budgets.meter == nil {
		return nil, openai.NewError(http.StatusForbidden, openai.PermissionError, "no_budgets", a.who(a.by.Limits != access.Limits{})+" has a budget, and this proxy has no store that counts it")
	}
	r := &reserved{allowance: a, price: a.budgets.upstream.Price(model)}
	if r.price == nil && max(a.by.Limits.MaxUSD, a.by.Project.MaxUSD) > 0 {
		return nil, openai.NewError(http.StatusForbidden, openai.PermissionError, "no_price",
			a.who(a.by.Limits.MaxUSD > 0)+" has a budget in dollars, and the model "+model+" has no price in the configuration of this proxy")
	}
	if err := r.reserve(ctx, most, exact); err != nil {
		return nil, budgetRefusal(ctx, err)
	}
	return r, nil
}

// reserved is the reservation of a call.
type reserved struct {
	*allowance

	price *upstream.Price
	got   *access.Reservation
}

// reserve reserves the upper bound of a call. If little of the budget is left, it asks exact for
// a tighter bound first.
func (r *reserved) reserve(ctx context.Context, most exchange.Usage, exact func(context.Context) (exchange.Usage, bool)) (err error) {
	meter := r.budgets.meter
	need := amounts(r.price, most)
	reply := amounts(r.price, exchange.Usage{Completion: most.Completion})
	asked := !r.by.Measured()
	ask := func() bool {
		asked = true
		found, ok := exact(ctx)
		if ok {
			need = amounts(r.price, found)
		}
		return ok
	}
	if !asked && meter.Tight(&r.by, need, reply) {
		ask()
	}
	if !asked {
		r.got, err = meter.TryReserve(ctx, &r.by, need)
		refused, is := errors.AsType[*access.BudgetError](err)
		if !is {
			return err
		}
		if refused.Room(reply) {
			ask()
		}
	}
	r.got, err = meter.Reserve(ctx, &r.by, need)
	return err
}

// Again implements [exchange.Reserved].
func (r *reserved) Again(ctx context.Context) error { return r.budgets.meter.Again(ctx, &r.by, r.got) }

// Settle implements [exchange.Reserved].
func (r *reserved) Settle(used *exchange.Usage) {
	if used == nil {
		r.got.SettleAll()
		return
	}
	r.got.Settle(amounts(r.price, *used))
}

// refusedAllowance refuses calls whose budget is unknown.
type refusedAllowance struct{ err error }

// Measured implements [exchange.Allowance].
func (refusedAllowance) Measured() bool { return false }

// Reserve implements [exchange.Allowance].
func (r refusedAllowance) Reserve(ctx context.Context, _ string, _ exchange.Usage, _ func(context.Context) (exchange.Usage, bool)) (exchange.Reserved, error) {
	return nil, budgetRefusal(ctx, r.err)
}

// who names the key, or else the project, in errors.
func (a *allowance) who(key bool) string {
	if key {
		return "the key " + a.by.KeyID
	}
	return "the project"
}

// budgetRefusal returns the answer to a call that gets no reservation, or the cause of ctx.
func budgetRefusal(ctx context.Context, err error) error {
	if spent, ok := errors.AsType[*access.BudgetError](err); ok {
		e := openai.NewError(http.StatusTooManyRequests, openai.RateLimitError, quota.ExceededCode, spent.Error())
		if spent.Fits() { // once running calls have settled, there may be room
			e.RetryAfter = 1
		}
		return e
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return openai.NewError(http.StatusServiceUnavailable, openai.OverloadedError, "budget_unavailable", "the budget of the key cannot be reserved: "+err.Error()).After(time.Second)
}

// amounts returns what one call uses of a budget. With a nil price it costs nothing.
func amounts(price *upstream.Price, u exchange.Usage) access.Amounts {
	return access.Amounts{Tokens: u.Sum(), NanoUSD: price.NanoUSD(u.Prompt, u.Completion), Calls: 1}
}
