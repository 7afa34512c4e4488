package execution

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/agl-go/agl"
)

// SharedMemory runs the algorithm and the runners as goroutines of this process
// over one store.
type SharedMemory struct {
	// JoinTimeout is how long runners may take, once training has ended, to finish the rollouts that they have
	// claimed; then their contexts end. Default 15 s.
	JoinTimeout time.Duration
	// GraceTimeout is how long a part may take to return once its context has
	// ended, and how long runners may take to finish their rollouts after an
	// interrupt or a failure. A function cannot be killed: one that does not
	// return is named in the error and left behind. Default 10 s.
	GraceTimeout time.Duration
	// Main is the side that runs on the goroutine that calls Execute: RoleAlgorithm, or RoleRunner for the first
	// runner. Code that needs the main thread, such as a debugger or a C library, gets it after runtime.LockOSThread
	// in an init function. Execute then returns only after that side has. Empty means neither.
	Main Role
	// Logger logs what the strategy does; nil discards.
	Logger *slog.Logger
}

var _ Strategy = SharedMemory{}

func (s SharedMemory) withDefaults() SharedMemory {
	s.JoinTimeout = cmp.Or(s.JoinTimeout, 15*time.Second)
	s.GraceTimeout = cmp.Or(s.GraceTimeout, 10*time.Second)
	s.Logger = cmp.Or(s.Logger, slog.New(slog.DiscardHandler))
	return s
}

// Placement implements [Strategy].
func (SharedMemory) Placement() Placement { return Placement{Role: RoleBoth, Private: true} }

// Execute runs the parts. See [Strategy].
func (s SharedMemory) Execute(ctx context.Context, parts Parts) (err error) {
	s, parts = s.withDefaults(), parts.withDefaults()
	if err := errors.Join(s.validate(parts), parts.validate(RoleBoth)); err != nil {
		return err
	}
	opened, err := parts.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, opened.Close) }()
	r := newRun(parts, withQueue(opened.Store), 0, s.Logger)
	if s.Main == "" {
		return s.lead(ctx, r)
	}
	r.main, r.mainPart = make(chan func(), 1), "algorithm"
	if s.Main == RoleRunner {
		r.mainPart = runnerName(0)
	}
	led := make(chan error, 1)
	go func() {
		defer close(r.main) // no more parts are started
		led <- s.lead(ctx, r)
	}()
	if run, ok := <-r.main; ok {
		run()
	}
	return <-led
}

// validate checks Main.
func (s SharedMemory) validate(parts Parts) error {
	switch {
	case s.Main != "" && s.Main != RoleAlgorithm && s.Main != RoleRunner:
		return agl.Errorf(agl.CodeInvalid, "execution: SharedMemory.Main: got %q, must be %s, %s or empty", string(s.Main), RoleAlgorithm, RoleRunner)
	case s.Main == RoleAlgorithm && parts.Algorithm == nil:
		return agl.Errorf(agl.CodeInvalid, "execution: SharedMemory.Main: got %s, but there is no algorithm", s.Main)
	}
	return nil
}

// lead starts the parts and returns when they have ended.
func (s SharedMemory) lead(ctx context.Context, r *run) error {
	return r.lead(ctx, s.GraceTimeout, func() error { return r.openQueue(ctx, s.GraceTimeout) }, func() error {
		r.startAlgorithm(ctx, s.GraceTimeout)
		for worker := range r.parts.Runners {
			// An interrupt does not end a runner's context at once: a rollout that is
			// nearly done may finish.
			drain := stopStep{name: "close the queue", do: r.closeQueue, wait: s.JoinTimeout, hurriedWait: s.GraceTimeout}
			r.startRunner(ctx, worker, s.GraceTimeout, drain)
		}
		return nil
	}, func() error { return nil })
}
