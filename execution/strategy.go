package execution

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest"
)

// Strategy runs the parts of a training run to their end.
type Strategy interface {
	// Execute returns nil when the algorithm has ended well and every runner has
	// left. It returns the first failure otherwise; [context.Cause] of ctx when
	// ctx ended, which is an [*InterruptError] for a signal (see NotifyContext);
	// and an error that names it when a side had to be forced.
	Execute(ctx context.Context, parts Parts) error
}

// Parts are the sides of a run, as plain functions.
type Parts struct {
	// Algorithm is the learning side. With none the run ends with its runners.
	Algorithm func(ctx context.Context, store agl.Store) error
	// Runner is one runner loop; worker counts from 0 over all processes of a
	// run. It returns nil once the store's queue is closed and what it had taken
	// is reported, and soon after ctx ends.
	Runner func(ctx context.Context, store agl.Store, worker int) error
	// Setup, if not nil, starts what serves both sides, such as an LLM proxy. It
	// is called where the algorithm runs, before any side starts; the function
	// that it returns is called when the last runner has left.
	Setup func(ctx context.Context, store agl.Store) (teardown func(ctx context.Context) error, err error)
	// Runners is how many runner loops there are; 0 means 1.
	Runners int
	// OpenStore opens the store that this process itself keeps. It is called at
	// most once, and not at all by a process that reaches the store over HTTP.
	OpenStore func(ctx context.Context) (OpenedStore, error)
}

// OpenedStore is a store and how to close it.
type OpenedStore struct {
	Store agl.Store
	// Close is called when no side uses the store any more; nil does nothing.
	Close func() error
	// Metrics, if the store observes into some, are served beside it.
	Metrics *rest.Metrics
}

func (p Parts) withDefaults() Parts {
	if p.Runners == 0 {
		p.Runners = 1
	}
	return p
}

func (p Parts) validate(role Role) error {
	switch {
	case p.Runners < 0:
		return agl.Errorf(agl.CodeInvalid, "execution: runners: got %d, must be at least 1", p.Runners)
	case p.Runner == nil && role != RoleAlgorithm:
		return agl.Errorf(agl.CodeInvalid, "execution: no runner given, which the role %s needs", role)
	case p.Algorithm == nil && role == RoleAlgorithm:
		return agl.Errorf(agl.CodeInvalid, "execution: no algorithm given, which the role algorithm needs")
	}
	return nil
}

// open opens the store of this process.
func (p Parts) open(ctx context.Context) (OpenedStore, error) {
	if p.OpenStore == nil {
		return OpenedStore{}, agl.Errorf(agl.CodeInvalid, "execution: no OpenStore given, which a process that keeps the store needs")
	}
	opened, err := p.OpenStore(ctx)
	if err != nil {
		return OpenedStore{}, fmt.Errorf("open the store: %w", err)
	}
	if opened.Close == nil {
		opened.Close = func() error { return nil }
	}
	return opened, nil
}

// setup calls Setup if there is one. The teardown that it returns reports to
// err and has its own time limit.
func (p Parts) setup(ctx context.Context, store agl.Store, grace time.Duration) (teardown func(err *error), err error) {
	if p.Setup == nil {
		return func(*error) {}, nil
	}
	stop, err := p.Setup(ctx, store)
	if err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	return func(err *error) {
		c, cancel := CleanupContext(ctx, grace)
		defer cancel()
		if failed := stop(c); failed != nil {
			*err = errors.Join(*err, fmt.Errorf("tear down: %w", failed))
		}
	}, nil
}

// ExitCode is the exit status that a main package should end with after a run:
// 0 for nil, 128 plus the signal's number for an interrupt (130 for Ctrl-C), 1
// for any other error.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if interrupt, ok := errors.AsType[*InterruptError](err); ok {
		return interrupt.ExitCode()
	}
	return 1
}
