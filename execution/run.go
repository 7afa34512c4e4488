package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/panics"
)

// run is a run that this process leads.
type run struct {
	supervisor
	parts      Parts
	store      agl.Store
	closeQueue func() error
	// main receives the function of the part named mainPart, which runs on the main goroutine; nil if no part does.
	main     chan func()
	mainPart string
}

// newRun returns a run with room for more parts besides the runner loops and the algorithm. Its queue stays as it is
// until openQueue.
func newRun(parts Parts, store agl.Store, more int, log *slog.Logger) *run {
	return &run{
		supervisor: supervisor{log: log, ended: make(chan *part, parts.Runners+1+more)},
		parts:      parts, store: store, closeQueue: func() error { return nil },
	}
}

// openQueue opens the queue. From then on closeQueue closes it within the timeout; further calls wait for the first
// one.
func (r *run) openQueue(ctx context.Context, timeout time.Duration) error {
	if err := r.store.OpenQueue(ctx); err != nil {
		return fmt.Errorf("open the queue: %w", err)
	}
	r.closeQueue = sync.OnceValue(func() error {
		c, cancel := CleanupContext(ctx, timeout)
		defer cancel()
		if err := r.store.CloseQueue(c); err != nil {
			return fmt.Errorf("close the queue: %w", err)
		}
		return nil
	})
	return nil
}

// lead calls Setup, open, which may open the queue, and start, and returns when all parts have ended and the queue is closed. If Setup
// fails, the queue stays as it was: another run may be using it. After a success lead also calls afterwards.
func (r *run) lead(ctx context.Context, grace time.Duration, open, start, afterwards func() error) (err error) {
	teardown, err := r.parts.setup(ctx, r.store, grace)
	if err != nil {
		return err
	}
	defer func() { teardown(&err) }()
	if err := open(); err != nil {
		return err
	}
	if err = start(); err == nil {
		err = r.supervise(ctx)
	} else {
		r.failure = err
		err = errors.Join(append([]error{err}, r.stop(true, Forced(ctx))...)...)
	}
	// Without a runner in this process nothing has closed the queue yet, but there may be runners elsewhere.
	closing := r.closeQueue()
	switch {
	case err != nil:
		return err
	case closing != nil:
		return closing
	default:
		return afterwards()
	}
}

// startAlgorithm runs the algorithm, if there is one, in this process.
func (r *run) startAlgorithm(ctx context.Context, grace time.Duration) {
	if r.parts.Algorithm != nil {
		r.algorithm = r.startFunc(ctx, "algorithm", grace, func(ctx context.Context) error { return r.parts.Algorithm(ctx, r.store) })
	}
}

func runnerName(worker int) string { return fmt.Sprintf("runner %d", worker) }

// startRunner runs one runner loop in this process. It is stopped by the given steps, and then by cancelling its
// context.
func (r *run) startRunner(ctx context.Context, worker int, grace time.Duration, before ...stopStep) {
	r.runners = append(r.runners, r.startFunc(ctx, runnerName(worker), grace,
		func(ctx context.Context) error { return r.parts.Runner(ctx, r.store, worker) }, before...))
}

// startFunc runs a function whose context does not end with an interrupt of the run: it is stopped in steps, the last
// of which cancels its context. The cause is a [*StopError] if a failure or an interrupt ended the run.
func (r *run) startFunc(ctx context.Context, name string, grace time.Duration, fn func(context.Context) error, before ...stopStep) *part {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	on := func(run func()) { go run() }
	if r.main != nil && name == r.mainPart {
		on = func(run func()) { r.main <- run }
	}
	return startOn(on, name, r.ended,
		func() error {
			defer cancel(nil)
			return r.catch(ctx, name, fn)
		},
		append(before, stopStep{name: "cancel", do: func() error { cancel(r.stopCause()); return nil }, wait: grace})...)
}

// catch calls the function of a part. A panic is logged with its stack and fails the part, so that all others are stopped, and what they
// have done is kept.
func (r *run) catch(ctx context.Context, name string, fn func(context.Context) error) error {
	err := panics.Catch(func() error { return fn(ctx) })
	if p, ok := errors.AsType[*panics.Error](err); ok {
		r.log.ErrorContext(ctx, "a part of the run panicked", "part", name, "panic", p.Value, "stack", p.Stack)
	}
	return panics.Located(err)
}
