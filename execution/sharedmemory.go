package execution

import (
	"cmp"
	"context"
	"log/slog"
	"time"
)

// SharedMemory runs the algorithm and the runners as goroutines of this process
// over one store.
type SharedMemory struct {
	// JoinTimeout is how long runners may take, once training has ended, to
	// finish what they had taken from the queue; their contexts end then.
	// Default 15 s.
	JoinTimeout time.Duration
	// GraceTimeout is how long a part may take to return once its context has
	// ended, and how long runners may take to finish their rollouts after an
	// interrupt or a failure. A function cannot be killed: one that does not
	// return is named in the error and left behind. Default 10 s.
	GraceTimeout time.Duration
	// Logger is told what the strategy does; nil discards.
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
	if err := parts.validate(RoleBoth); err != nil {
		return err
	}
	opened, err := parts.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, opened.Close) }()
	r := newRun(parts, opened.Store, 0, s.Logger)
	if err := r.openQueue(ctx, s.GraceTimeout); err != nil {
		return err
	}
	return r.lead(ctx, s.GraceTimeout, func() error {
		r.startAlgorithm(ctx, s.GraceTimeout)
		for worker := range parts.Runners {
			// An interrupt does not end a runner's context at once: a rollout that is
			// nearly done may finish.
			drain := stopStep{name: "close the queue", do: r.closeQueue, wait: s.JoinTimeout, hurriedWait: s.GraceTimeout}
			r.startRunner(ctx, worker, s.GraceTimeout, drain)
		}
		return nil
	}, func() error { return nil })
}
