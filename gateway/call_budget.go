package gateway

import (
	"errors"
	"net/http"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// reserveCall reserves what a model call may use at most, and returns the body with the output
// limit that this takes. settle must be called when the call has ended. Of a caller without a
// budget it returns the body.
func (g *Gateway) reserveCall(r *http.Request, path string, body []byte) (bounded []byte, settle func(x *exchange, err error), err error) {
	by := callerOf(r)
	if err := g.admit(by); err != nil {
		return nil, nil, err
	}
	if !by.Limited() {
		return body, func(*exchange, error) {}, nil
	}
	if max(by.Limits.MaxUSD, by.Project.MaxUSD) > 0 && g.cfg.Price == nil {
		return nil, nil, errStatus(http.StatusForbidden, "the key "+by.KeyID+" or its project has a budget in dollars, and the model "+g.cfg.Model+" has no price here: set --gateway-price")
	}
	member := "max_completion_tokens"
	if path == completions {
		member = "max_tokens"
	}
	bounded, output, err := openai.BoundOutput(body, member)
	if err != nil {
		return nil, nil, errStatus(http.StatusBadRequest, err.Error())
	}
	most := g.amounts(openai.PromptBound(bounded), output)
	most.Calls = 1
	got, err := g.meter.Reserve(r.Context(), &by.Caller, most)
	if err != nil {
		return nil, nil, budgetError(err)
	}
	return bounded, func(x *exchange, err error) { got.Settle(g.used(x, err, most)) }, nil
}

// amounts are tokens, and what they cost.
func (g *Gateway) amounts(prompt, completion int64) access.Amounts {
	return access.Amounts{Tokens: prompt + completion, NanoUSD: g.cfg.Price.NanoUSD(prompt, completion)}
}

// used returns what a call has used: what the backend has counted, nothing if it has failed,
// and all that was reserved if nobody knows.
func (g *Gateway) used(x *exchange, err error, most access.Amounts) access.Amounts {
	counted, _ := rawjson.Get(x.response, "usage")
	u, known := openai.ParseUsage(counted)
	_, answered := errors.AsType[*statusError](err)
	switch {
	case known:
		return g.amounts(u.Prompt, u.Completion)
	case x.status >= http.StatusMultipleChoices, x.status == 0 && answered && !errors.Is(err, errTimedOut):
		return access.Amounts{}
	default:
		return most
	}
}
