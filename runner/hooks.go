package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/panics"
)

// hooks are the hooks of an attempt.
type hooks struct {
	all   []agl.Hook
	log   *slog.Logger
	grace time.Duration // for the end methods of an attempt whose context has ended
}

type lineageKey struct{}

// start calls a start method of every hook, and returns ctx with what they have added.
func (h *hooks) start(ctx context.Context, name string, call func(context.Context, agl.Hook) (context.Context, error)) context.Context {
	for i := range h.all {
		ctx = h.startOne(ctx, i, name, call) //nolint:fatcontext // one layer for each hook
	}
	return ctx
}

func (h *hooks) startOne(ctx context.Context, i int, name string, call func(context.Context, agl.Hook) (context.Context, error)) (next context.Context) {
	lineage := new(byte)
	h.call(ctx, i, name, func(ctx context.Context, hook agl.Hook) (err error) {
		next, err = call(context.WithValue(ctx, lineageKey{}, lineage), hook) //nolint:fatcontext // called once
		if next != nil && next.Value(lineageKey{}) != lineage {
			err = errors.Join(err, errors.New("it returned a context that is not derived from its own, which is ignored"))
			next = nil //nolint:contextcheck // the previous context stays
		}
		return err
	})
	if next == nil {
		return ctx
	}
	return next
}

// call calls a method of a hook. An error or a panic is logged.
func (h *hooks) call(ctx context.Context, i int, name string, call func(context.Context, agl.Hook) error) {
	hook := h.all[i]
	err := panics.Catch(func() error { return call(ctx, hook) })
	if err == nil {
		return
	}
	log := h.log
	if p, ok := errors.AsType[*panics.Error](err); ok {
		log = log.With("stack", p.Stack)
	}
	log.ErrorContext(ctx, "hook failed", "hook", fmt.Sprintf("%d (%T)", i, hook), "method", name, "error", err)
}

// end calls an end method of every hook. ctx is the agent's context. If it has ended, hooks get its values for a
// grace period.
func (h *hooks) end(ctx context.Context, name string, call func(context.Context, agl.Hook) error) {
	if len(h.all) == 0 {
		return
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), h.grace)
		defer cancel()
	}
	for i := range h.all {
		h.call(ctx, i, name, call)
	}
}
