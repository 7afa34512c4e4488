package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/agl-go/agl/access"
)

// settleTimeout bounds the time that settling budgets takes when the gateway closes.
const settleTimeout = 10 * time.Second

// settle spends what a request has reserved, or returns it if the request failed.
func (g *Gateway) settle(r *http.Request, by *caller, status int) {
	if err := by.lease.End(context.WithoutCancel(r.Context()), status != 0 && status < http.StatusBadRequest); err != nil {
		g.cfg.Logger.Warn("a budget was not settled, so its reservation counts as spent", "key", by.KeyID, "error", err)
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
		g.cfg.Logger.Warn("budgets were not settled", "error", err)
	}
}

// admit counts a call if the rules of its caller's key allow it. All calls go to one model.
func (g *Gateway) admit(by *caller) error {
	err := g.rates.Admit(by.Subject(), g.cfg.Model, time.Now())
	broken, ok := errors.AsType[*access.RuleError](err)
	switch {
	case !ok:
		return nil
	case broken.Wait > 0:
		return errStatus(http.StatusTooManyRequests, broken.Error()).after(broken.Wait)
	default:
		return errStatus(http.StatusForbidden, broken.Error())
	}
}
