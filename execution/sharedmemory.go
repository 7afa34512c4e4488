package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// SharedMemory runs the algorithm and the runners as goroutines of this process
// over one store.
type SharedMemory struct {
	// JoinTimeout is how long runners may take, once training has ended, to
	// finish what they had taken from the queue; their contexts end then.
	// Default 15 s.
	JoinTimeout time.Duration
	// GraceTimeout is how long a side may take to return once its context has
	// ended, and how long runners may take to finish their rollouts after an
	// interrupt or a failure. A function cannot be killed: one that
	// does not answer is named in the error and left behind. Default 10 s.
	GraceTimeout time.Duration
	// Logger hears what the strategy does; nil discards.
	Logger *slog.Logger
}

var _ Strategy = SharedMemory{}

func (s SharedMemory) withDefaults() SharedMemory {
	s.JoinTimeout = orDefault(s.JoinTimeout, 15*time.Second)
	s.GraceTimeout = orDefault(s.GraceTimeout, 10*time.Second)
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	return s
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// Execute runs the parts. See [Strategy].
func (s SharedMemory) Execute(ctx context.Context, parts Parts) (err error) {
	s, parts = s.withDefaults(), parts.withDefaults()
	if err := parts.validate(RoleBoth); err != nil {
		return err
	}
	opened, err := parts.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, opened.Close) }()
	store := opened.Store
	if err := store.OpenQueue(ctx); err != nil {
		return fmt.Errorf("open the queue: %w", err)
	}
	teardown, err := parts.setup(ctx, store, s.GraceTimeout)
	if err != nil {
		return err
	}
	defer func() { teardown(&err) }()
	sideCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan *side, parts.Runners+1)
	sup := &supervisor{log: s.Logger, ended: ended}
	closeQueue := queueCloser(ctx, store, s.GraceTimeout)
	if parts.Algorithm != nil {
		sup.algorithm = startAlgorithm(sideCtx, ended, parts, store, s.GraceTimeout)
	}
	for worker := range parts.Runners {
		// An interrupt does not end a runner's context at once: a rollout that is
		// nearly done may finish.
		drain := rung{name: "close the queue", act: closeQueue, wait: s.JoinTimeout, hurried: s.GraceTimeout}
		sup.runners = append(sup.runners, startRunner(sideCtx, ended, parts, store, worker, s.GraceTimeout, drain))
	}
	return closeAfter(sup.run(ctx), closeQueue)
}

// closeAfter closes the queue in case nobody has yet, for runners elsewhere.
func closeAfter(err error, closeQueue func() error) error {
	if closing := closeQueue(); err == nil {
		return closing
	}
	return err
}

// startAlgorithm runs the algorithm in this process.
func startAlgorithm(ctx context.Context, ended chan<- *side, parts Parts, store agl.Store, grace time.Duration) *side {
	ctx, cancel := context.WithCancel(ctx)
	return startFunc("algorithm", ended,
		func() error {
			defer cancel()
			return parts.Algorithm(ctx, store)
		},
		rung{name: "cancel", act: func() error { cancel(); return nil }, wait: grace})
}

// startRunner runs one runner loop in this process. The rungs given come before
// the end of its context.
func startRunner(
	ctx context.Context, ended chan<- *side, parts Parts, store agl.Store, worker int, grace time.Duration, before ...rung,
) *side {
	ctx, cancel := context.WithCancel(ctx)
	return startFunc(fmt.Sprintf("runner %d", worker), ended,
		func() error {
			defer cancel()
			return parts.Runner(ctx, store, worker)
		},
		append(before, rung{name: "cancel", act: func() error { cancel(); return nil }, wait: grace})...)
}

// queueCloser returns a function that closes the queue once, for all that call
// it.
func queueCloser(ctx context.Context, store agl.Store, timeout time.Duration) func() error {
	return sync.OnceValue(func() error {
		c, cancel := CleanupContext(ctx, timeout)
		defer cancel()
		if err := store.CloseQueue(c); err != nil {
			return fmt.Errorf("close the queue: %w", err)
		}
		return nil
	})
}

// joinClose adds the error of closing to that of the run.
func joinClose(err error, closeStore func() error) error {
	if closing := closeStore(); closing != nil {
		return errors.Join(err, fmt.Errorf("close the store: %w", closing))
	}
	return err
}
