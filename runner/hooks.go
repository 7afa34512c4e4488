package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/agl-go/agl"
)

type lineageKey struct{}

// startHooks calls a start method of every hook. It returns ctx with what they have added.
func (a *attempt) startHooks(ctx context.Context, name string, call func(context.Context, agl.Hook) (context.Context, error)) context.Context {
	for i := range a.cfg.Hooks {
		ctx = a.startHook(ctx, i, name, call) //nolint:fatcontext // one layer for each hook
	}
	return ctx
}

func (a *attempt) startHook(ctx context.Context, i int, name string, call func(context.Context, agl.Hook) (context.Context, error)) (next context.Context) {
	lineage := new(byte)
	a.hook(ctx, i, name, func(ctx context.Context, h agl.Hook) (err error) {
		next, err = call(context.WithValue(ctx, lineageKey{}, lineage), h) //nolint:fatcontext // called once
		if next != nil && next.Value(lineageKey{}) != lineage {
			err = errors.Join(err, errors.New("it returned a context that is not derived from its own, which is ignored"))
			next = nil //nolint:contextcheck // the one before stays
		}
		return err
	})
	if next == nil {
		return ctx
	}
	return next
}

// hook calls a method of a hook. An error or a panic is logged.
func (a *attempt) hook(ctx context.Context, i int, name string, call func(context.Context, agl.Hook) error) {
	h := a.cfg.Hooks[i]
	err := catchPanic(func() error { return call(ctx, h) })
	if err == nil {
		return
	}
	log := a.log
	if p, ok := errors.AsType[*panicError](err); ok {
		log = log.With("stack", p.stack)
	}
	log.ErrorContext(ctx, "hook failed", "hook", fmt.Sprintf("%d (%T)", i, h), "method", name, "error", err)
}

// endHooks calls an end method of every hook. ctx is that of the agent, whose values they get for a grace period if it
// has ended.
func (a *attempt) endHooks(ctx context.Context, name string, call func(context.Context, agl.Hook) error) {
	if len(a.cfg.Hooks) == 0 {
		return
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), a.cfg.GracePeriod)
		defer cancel()
	}
	for i := range a.cfg.Hooks {
		a.hook(ctx, i, name, call)
	}
}
