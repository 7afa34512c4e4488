package execution

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/server"
)

// Strategy runs the parts of a training run to their end.
type Strategy interface {
	// Execute returns nil if the algorithm succeeded and every runner returned. Otherwise it returns the first
	// failure; or, when ctx ended, its [context.Cause], which is an [*InterruptError] for a signal (see
	// [NotifyContext]); or an error that names a part that had to be forced.
	Execute(ctx context.Context, parts Parts) error
	// Placement says which parts run in this process.
	Placement() Placement
}

// Placement says which parts of a run this process runs. The zero value means both sides, with a store that other
// processes can reach.
type Placement struct {
	// Role is this process's part; empty means both.
	Role Role
	// Private is true if no other process can reach the store.
	Private bool
}

// Parts are the parts of a run, as plain functions.
type Parts struct {
	// Algorithm trains. Without one, the run ends with its runners.
	Algorithm func(ctx context.Context, store agl.Store) error
	// Runner is one runner loop; worker counts from 0 over all processes of a run. It returns nil once the store's
	// queue is closed and the rollouts that it claimed are reported, and soon after ctx ends.
	Runner func(ctx context.Context, store agl.Store, worker int) error
	// Setup, if not nil, starts a service that the other parts use, such as an LLM
	// proxy. It is called in the process of the algorithm, before the queue is opened and any part starts;
	// teardown is called when the last runner has returned.
	Setup func(ctx context.Context, store agl.Store) (teardown func(ctx context.Context) error, err error)
	// StoreURL, if not nil, is called with the URL at which other processes reach the store, before any part starts.
	// It is not called if they cannot reach it.
	StoreURL func(url string)
	// Runners is the number of runner loops; 0 means 1.
	Runners int
	// OpenStore opens the store of this process. It is called at most once, and
	// not at all in a process that reaches the store over HTTP.
	OpenStore func(ctx context.Context) (OpenedStore, error)
}

// OpenedStore is an open store.
type OpenedStore struct {
	Store agl.Store
	// Close is called when no part uses the store any more; nil does nothing.
	Close func() error
	// Metrics, if not nil, are the store's metrics, which a store server serves, too.
	Metrics *server.Metrics
	// Collector, if not nil, hands out finished rollouts at the store server.
	Collector agl.Collector
	// UI is the web page of the store server; nil is the plain one of [server.Config].
	UI http.Handler
}

func (p Parts) withDefaults() Parts {
	p.Runners = cmp.Or(p.Runners, 1)
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

// setup calls Setup, if there is one. teardown takes at most grace, and adds its error to err.
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

// joinClose closes the store and adds its error to that of the run.
func joinClose(err error, closeStore func() error) error {
	if closing := closeStore(); closing != nil {
		return errors.Join(err, fmt.Errorf("close the store: %w", closing))
	}
	return err
}
