package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
)

// Runner runs an agent on rollouts. It is safe for concurrent use.
type Runner struct {
	cfg       Config
	barrier   *barrier
	snapshot  *snapshots
	abandoned atomic.Int64

	drainOnce sync.Once
	drain     chan struct{}

	suffix      string // of the ids of step workers
	stepMu      sync.Mutex
	idleSteps   []int // numbers of step workers that are free
	stepWorkers int
}

// Abandoned returns how many agents are still running although their attempts
// ended and their grace period passed.
func (r *Runner) Abandoned() int { return int(r.abandoned.Load()) }

// Drain is the gentle stop: no worker takes another rollout, and Run returns
// once those that are under way have ended by themselves. It does not wait. A
// drained runner stays drained.
func (r *Runner) Drain() { r.drainOnce.Do(func() { close(r.drain) }) }

// Run takes rollouts and executes them until the queue is closed, MaxRollouts
// are done or the runner is drained; it then returns nil. When ctx ends, the
// agents' contexts end, too, and Run returns nil once their attempts are
// reported, failed with the outcome cancelled: that takes at most two grace
// periods. An error means that the store refuses the runner, or has been away
// for MaxOutage.
func (r *Runner) Run(ctx context.Context) error {
	tickets := &tickets{left: r.cfg.MaxRollouts, unlimited: r.cfg.MaxRollouts == 0}
	workers := r.cfg.Workers
	if !tickets.unlimited {
		workers = min(workers, r.cfg.MaxRollouts)
	}
	run := newSuffix()
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			errs[i] = r.newWorker(fmt.Sprintf("%s-%d-%s", r.cfg.WorkerPrefix, r.cfg.FirstWorker+i, run)).run(ctx, tickets)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// newSuffix makes worker ids unique: process ids are not, in containers of one host
// name or with two runs in a process, and a worker that shares its id takes the
// other's heartbeats for its own.
func newSuffix() string {
	const length = 8
	return strings.ToLower(rand.Text()[:length])
}

// StepParams are the arguments of [Runner.Step].
type StepParams struct {
	agl.EnqueueRollout
	// Resources, if not nil, are added to the store first and used.
	Resources agl.Resources
}

// Step executes one rollout past the queue and returns it as it ended. The
// error is an [agl.OutcomeError] in the chain when the attempt failed. The end
// of ctx cancels the attempt.
func (r *Runner) Step(ctx context.Context, p StepParams) (agl.AttemptedRollout, error) {
	if p.Resources != nil {
		update, err := r.cfg.Store.AddResources(ctx, agl.AddResourcesParams{Resources: p.Resources})
		if err != nil {
			return agl.AttemptedRollout{}, fmt.Errorf("add resources: %w", err)
		}
		p.ResourcesID = agl.Some(update.ResourcesID)
	}
	id, release := r.stepWorker()
	defer release()
	w := r.newWorker(id)
	rollout, err := r.cfg.Store.StartRollout(ctx, agl.StartRolloutParams{EnqueueRollout: p.EnqueueRollout, WorkerID: agl.Some(id)})
	if err != nil {
		return agl.AttemptedRollout{}, fmt.Errorf("start rollout: %w", err)
	}
	stop := w.startHeartbeats(ctx)
	failure := w.execute(ctx, rollout)
	stop()
	closing, cancel := r.closing(ctx)
	defer cancel()
	final, err := r.cfg.Store.GetRollout(closing, agl.GetRolloutParams{RolloutID: rollout.RolloutID})
	if err != nil {
		return rollout, errors.Join(failure, fmt.Errorf("read rollout: %w", err))
	}
	return final, failure
}

// stepWorker lends a worker id: steps that run at once need one each, and the
// store should not see a new worker per step.
func (r *Runner) stepWorker() (id string, release func()) {
	r.stepMu.Lock()
	defer r.stepMu.Unlock()
	n := r.stepWorkers
	if last := len(r.idleSteps) - 1; last >= 0 {
		n = r.idleSteps[last]
		r.idleSteps = r.idleSteps[:last]
	} else {
		r.stepWorkers++
	}
	return fmt.Sprintf("%s-step-%d-%s", r.cfg.WorkerPrefix, n, r.suffix), func() {
		r.stepMu.Lock()
		defer r.stepMu.Unlock()
		r.idleSteps = append(r.idleSteps, n)
	}
}

// closing returns the context for the last words about an attempt: it outlives
// ctx, by a grace period at most.
func (r *Runner) closing(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.ReportTimeout)
	stop := context.AfterFunc(ctx, func() {
		_ = backoff.Sleep(out, r.cfg.GracePeriod) // out ends earlier when nobody needs it any more
		cancel()
	})
	return out, func() { stop(); cancel() }
}

// tickets counts the rollouts that may still be taken. A worker keeps its
// ticket until it gets a rollout for it.
type tickets struct {
	mu        sync.Mutex
	left      int
	unlimited bool
}

func (t *tickets) take() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unlimited {
		return true
	}
	if t.left == 0 {
		return false
	}
	t.left--
	return true
}

// storeBackoff is the schedule of tries while the store is unavailable.
func storeBackoff() backoff.Exponential {
	return backoff.Exponential{First: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.5}
}

// retry calls f until it succeeds, fails for good, or ctx ends.
func retry(ctx context.Context, f func(ctx context.Context) error) error {
	for failures := 0; ; failures++ {
		err := f(ctx)
		if err == nil || !agl.Transient(err) || storeBackoff().Wait(ctx, failures) != nil {
			return err
		}
	}
}
