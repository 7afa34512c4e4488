package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// settleTimeout bounds how long a budget is settled when the gateway closes.
const settleTimeout = 10 * time.Second

// reserve reserves what the request uses of its caller's budget.
func (c *caller) reserve(ctx context.Context, amounts access.Amounts) error {
	return budgetError(c.lease.Reserve(ctx, amounts))
}

// budgetError is the answer to a request for which a budget has no room.
func budgetError(err error) error {
	if spent, ok := errors.AsType[*access.BudgetError](err); ok {
		return errStatus(http.StatusTooManyRequests, spent.Error())
	}
	return err
}

// settle spends what a request has reserved, or returns it if it has failed.
func (g *Gateway) settle(r *http.Request, by *caller, status int) {
	if err := by.lease.End(context.WithoutCancel(r.Context()), status != 0 && status < http.StatusBadRequest); err != nil {
		g.cfg.Logger.Warn("a budget is not settled, so that what was reserved counts as spent", "key", by.KeyID, "error", err)
	}
}

// closeMeter settles the model calls that have ended.
func (g *Gateway) closeMeter(ctx context.Context) {
	if g.meter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err := g.meter.Close(ctx); err != nil {
		g.cfg.Logger.Warn("budgets are not settled", "error", err)
	}
}

// reserveCall reserves what a model call may use at most, and returns the body with the output
// limit that this takes. settle must be called when the call has ended. Of a caller without a
// budget it returns the body.
func (g *Gateway) reserveCall(r *http.Request, path string, body []byte) (bounded []byte, settle func(x *exchange, err error), err error) {
	by := callerOf(r)
	if !by.Limited() {
		return body, func(*exchange, error) {}, nil
	}
	if by.Limits.MaxUSD > 0 {
		return nil, nil, errStatus(http.StatusForbidden, "the key "+by.KeyID+" has a budget in dollars, and this API knows no prices: use agl proxy")
	}
	member := "max_completion_tokens"
	if path == completions {
		member = "max_tokens"
	}
	bounded, output, err := openai.BoundOutput(body, member)
	if err != nil {
		return nil, nil, errStatus(http.StatusBadRequest, err.Error())
	}
	most := access.Amounts{Tokens: openai.PromptBound(bounded) + output, Calls: 1}
	got, err := g.meter.Reserve(r.Context(), &by.Caller, most)
	if err != nil {
		return nil, nil, budgetError(err)
	}
	return bounded, func(x *exchange, err error) { got.Settle(used(x, err, most)) }, nil
}

// used returns what a call has used: what the backend has counted, nothing if it has failed,
// and all that was reserved if nobody knows.
func used(x *exchange, err error, most access.Amounts) access.Amounts {
	counted, _ := rawjson.Get(x.response, "usage")
	u, known := openai.ParseUsage(counted)
	_, answered := errors.AsType[*statusError](err)
	switch {
	case known:
		return access.Amounts{Tokens: u.Prompt + u.Completion}
	case x.status >= http.StatusMultipleChoices, x.status == 0 && answered && !errors.Is(err, errTimedOut):
		return access.Amounts{}
	default:
		return most
	}
}
