package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// reservedCall is what a model call may spend. Nil is a call without a budget.
type reservedCall struct {
	meter *access.Meter
	by    *access.Caller
	most  access.Amounts
	got   *access.Reservation
	lost  []*access.Reservation // for earlier tries, whose replies were lost
}

// reserveCall reserves what a model call may use at most, and returns the body with the output
// limit that this takes. The reservation must be settled when the call has ended.
func (g *Gateway) reserveCall(r *http.Request, path string, body []byte) (bounded []byte, reserved *reservedCall, err error) {
	by := callerOf(r)
	if err := g.admit(by); err != nil {
		return nil, nil, err
	}
	if !by.Limited() {
		return body, nil, nil
	}
	if max(by.Limits.MaxUSD, by.Project.MaxUSD) > 0 && g.cfg.Price == nil {
		return nil, nil, errStatus(http.StatusForbidden, "the key "+by.KeyID+" or its project has a budget in dollars, and the model "+g.cfg.Model+" has no price here: set --gateway-price")
	}
	reserved = &reservedCall{meter: g.meter, by: &by.Caller}
	if by.Measured() {
		member := "max_completion_tokens"
		if path == completions {
			member = "max_tokens"
		}
		bounded, output, err := openai.BoundOutput(body, member)
		if err != nil {
			return nil, nil, errStatus(http.StatusBadRequest, err.Error())
		}
		body, reserved.most = bounded, g.amounts(openai.PromptBound(bounded), output)
	}
	reserved.most.Calls = 1
	if reserved.got, err = g.meter.Reserve(r.Context(), reserved.by, reserved.most); err != nil {
		return nil, nil, budgetError(err)
	}
	return body, reserved, nil
}

// measured reports whether tokens count.
func (c *reservedCall) measured() bool { return c != nil && c.by.Measured() }

// again reserves for a call that is repeated although the backend may have executed it.
func (c *reservedCall) again(ctx context.Context) error {
	if c == nil {
		return nil
	}
	more := c.most
	more.Calls = 0 // it is still one call
	got, err := c.meter.Reserve(ctx, c.by, more)
	if err == nil {
		c.lost = append(c.lost, got)
	}
	return err
}

// settle spends what the call has used, and what it may have used where nobody knows.
func (c *reservedCall) settle(used access.Amounts, known bool) {
	if c == nil {
		return
	}
	for _, got := range c.lost {
		got.SettleAll()
	}
	if known {
		c.got.Settle(used)
	} else {
		c.got.SettleAll()
	}
}

// amounts are tokens, and what they cost.
func (g *Gateway) amounts(prompt, completion int64) access.Amounts {
	return access.Amounts{Tokens: prompt + completion, NanoUSD: g.cfg.Price.NanoUSD(prompt, completion)}
}

// used returns what a call has used: what the backend has counted, nothing if it has failed or
// was not reached. known is false where nobody knows.
func (g *Gateway) used(x *exchange, err error) (used access.Amounts, known bool) {
	counted, _ := rawjson.Get(x.response, "usage")
	u, ok := openai.ParseUsage(counted)
	_, answered := errors.AsType[*statusError](err)
	switch {
	case ok:
		return g.amounts(u.Prompt, u.Completion), true
	case x.status >= http.StatusMultipleChoices, x.status == 0 && answered && !x.lost:
		return access.Amounts{}, true
	default:
		return access.Amounts{}, false
	}
}
