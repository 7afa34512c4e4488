package proxy

import (
	"errors"
	"net/http"
	"time"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/quota"
)

// charge sets the caller to whom a request counts, and the budget that it spends.
func (r *route) charge(b *budgets, request *http.Request, by caller) {
	r.gone = by.gone
	who := access.Caller{Name: r.rolloutID + "/" + r.attemptID}
	if by.key != nil {
		who, r.subject = *by.key, by.key.Subject()
	}
	r.who = who.Who(request.RemoteAddr)
	r.allowance = b.of(request.Context(), by.key)
}

// rules enforces the rules of callers' keys and of rollouts' controls.
type rules struct {
	rates access.Rates // of attempts and keys
	quota *quota.Quota
}

// allow reports whether the caller's key and the control of its rollout allow calls of a
// model.
func (r *rules) allow(rt route, model string) bool {
	if rt.subject != nil && !rt.subject.Rules.Allows(model) {
		return false
	}
	return rt.rolloutID == "" || r.quota.Of(rt.rolloutID).Allows(model)
}

// admit returns the exchange.Origin.Admit of a call. It checks and counts the call by the rules of
// its caller's key and of its attempt.
func (r *rules) admit(rt route) func(model string, start time.Time) error {
	return func(model string, start time.Time) error {
		if rt.subject != nil {
			if err := r.rates.Admit(rt.subject, model, start); err != nil {
				return ruleRefusal(err)
			}
		}
		if rt.rolloutID == "" {
			return nil
		}
		if attempt := r.quota.Subject(rt.rolloutID, rt.attemptID); attempt != nil {
			return ruleRefusal(r.rates.Admit(attempt, model, start))
		}
		return nil
	}
}

// ruleRefusal turns an *access.RuleError into the answer to the call.
func ruleRefusal(err error) error {
	broken, ok := errors.AsType[*access.RuleError](err)
	switch {
	case !ok:
		return err
	case broken.Wait > 0:
		return openai.NewError(http.StatusTooManyRequests, openai.RateLimitError, "rate_limit_exceeded", broken.Error()).After(broken.Wait)
	default:
		e := openai.NewError(http.StatusForbidden, openai.PermissionError, "model_forbidden", broken.Error())
		e.Param = "model"
		return e
	}
}
