package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/agl-go/agl/access"
)

// callerKey is the key of a request's context under which its *caller is.
type callerKey struct{}

// caller is who makes a request, and what that uses of its budget.
type caller struct {
	access.Caller

	lease *access.Lease // nil without a budget
	// gone returns why the caller may no longer be here; nil is never.
	gone func(ctx context.Context) error
}

// callerOf returns the caller of a request.
func callerOf(r *http.Request) *caller {
	if c, ok := r.Context().Value(callerKey{}).(*caller); ok {
		return c
	}
	return &caller{} // of a route that is public: nobody
}

// allow returns why the caller of a request may not use a route that declares scopes.
func allow(r *http.Request, scope access.Scope) error {
	if err := callerOf(r).Allow(scope); err != nil {
		return errStatus(http.StatusForbidden, err.Error())
	}
	return nil
}

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
