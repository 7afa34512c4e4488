package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// reservedCall is what a model call may spend. For a call without a budget it is nil.
type reservedCall struct {
	meter *access.Meter
	by    *access.Caller
	got   *access.Reservation
}

// reserveCall reserves the most that a model call may use, and returns the body with the output limit on which that
// is based. The reservation must be settled when the call has ended.
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
	most := access.Amounts{Calls: 1}
	if by.Measured() {
		member := "max_completion_tokens"
		if path == completions {
			member = "max_tokens"
		}
		bounded, output, err := openai.BoundOutput(body, member)
		if err != nil {
			return nil, nil, errStatus(http.StatusBadRequest, err.Error())
		}
		body, most = bounded, g.amounts(openai.PromptBound(bounded), output)
		most.Calls = 1
	}
	if reserved.got, err = g.meter.Reserve(r.Context(), reserved.by, most); err != nil {
		return nil, nil, budgetError(err)
	}
	return body, reserved, nil
}

// again reserves once more for a call that is sent again although the backend may have executed it.
func (c *reservedCall) again(ctx context.Context) error {
	if c == nil {
		return nil
	}
	return c.meter.Again(ctx, c.by, c.got)
}

// settle spends what the call has used, or everything that is reserved if that is unknown.
func (c *reservedCall) settle(used access.Amounts, known bool) {
	if c == nil {
		return
	}
	if known {
		c.got.Settle(used)
	} else {
		c.got.SettleAll()
	}
}

// amounts returns the tokens and their cost.
func (g *Gateway) amounts(prompt, completion int64) access.Amounts {
	return access.Amounts{Tokens: prompt + completion, NanoUSD: g.cfg.Price.NanoUSD(prompt, completion)}
}

// used returns what a call has used: the usage that the backend reported, or nothing if the call failed or never
// reached a backend. known is false if it may have used something that nobody reported.
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
