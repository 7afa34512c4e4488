package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/agl-go/agl/access"
)

// callerKey is the context key of a request's *caller.
type callerKey struct{}

// caller is who makes a request, and the lease on its budget.
type caller struct {
	access.Caller

	lease *access.Lease // nil without a budget
	// gone checks the caller's key again, see access.Watch; nil if the caller has no key that can become invalid.
	gone func(ctx context.Context) error
}

// callerOf returns the caller of a request.
func callerOf(r *http.Request) *caller {
	if c, ok := r.Context().Value(callerKey{}).(*caller); ok {
		return c
	}
	return &caller{} // on a public route: nobody
}

// reserve reserves amounts of the caller's budget for the request.
func (c *caller) reserve(ctx context.Context, amounts access.Amounts) error {
	return budgetError(c.lease.Reserve(ctx, amounts))
}

// budgetError turns an error of a budget without room into the answer to the request.
func budgetError(err error) error {
	if spent, ok := errors.AsType[*access.BudgetError](err); ok {
		refused := errStatus(http.StatusTooManyRequests, spent.Error())
		if spent.Fits() { // once running requests have settled, there may be room
			return refused.after(time.Second)
		}
		refused.header = http.Header{"X-Should-Retry": {"false"}} // OpenAI's and Anthropic's clients obey it
		return refused
	}
	return err
}
