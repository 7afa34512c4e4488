package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/panics"
	"github.com/agl-go/agl/tracer"
)

// Runner runs an agent on rollouts. It is safe for concurrent use.
type Runner struct {
	shared shared

	drainOnce sync.Once
	drain     chan struct{}

	suffix      string // of the ids of step workers
	stepMu      sync.Mutex
	idleSteps   []int // numbers of idle step workers
	stepWorkers int
}

// New returns a runner. It does nothing before Run or Step.
func New(cfg Config) (*Runner, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.Tracer == nil {
		t, err := tracer.New(tracer.Config{Store: cfg.Store, RetryTimeout: cfg.ReportTimeout, Logger: cfg.Logger})
		if err != nil {
			return nil, err
		}
		cfg.Tracer = t
	}
	r := &Runner{
		shared: shared{
			cfg:       cfg,
			proxies:   &proxyFlusher{flusher: cfg.Flusher, client: httpserver.ByMethod(cfg.HTTPClient), token: cfg.CurrentProxyToken, log: cfg.Logger},
			snapshots: &snapshots{take: cfg.Snapshot, maxAge: cfg.HeartbeatInterval / 2},
		},
		suffix: newSuffix(),
		drain:  make(chan struct{}),
	}
	r.shared.withRunner = func(ctx context.Context) context.Context { return context.WithValue(ctx, runnerKey{}, r) }
	return r, nil
}

type runnerKey struct{}

// FromContext returns the runner that runs an attempt, from the context of its agent or its hooks; nil for other
// contexts. For a custom runner that contains a Runner it returns that Runner.
func FromContext(ctx context.Context) *Runner {
	r, _ := ctx.Value(runnerKey{}).(*Runner)
	return r
}

// Agent returns the agent that the runner runs.
func (r *Runner) Agent() agl.Agent { return r.shared.cfg.Agent }

// Tracer returns the tracer of the runner's attempts.
func (r *Runner) Tracer() agl.Tracer { return r.shared.cfg.Tracer }

// Store returns the store that the runner takes rollouts from.
func (r *Runner) Store() agl.Store { return r.shared.cfg.Store }

// newSuffix returns a random suffix that makes worker ids unique. Process ids are not: containers may share a host
// name, and a process may have two runs. Workers with the same id would take each other's attempts for their own.
func newSuffix() string {
	const length = 8
	return strings.ToLower(rand.Text()[:length])
}

// Abandoned returns the number of agents that are still running although their attempts have ended and their grace
// periods have passed.
func (r *Runner) Abandoned() int { return int(r.shared.abandoned.Load()) }

// Drain makes workers take no further rollouts, and Run return once those in progress have ended by themselves. It
// does not wait. A drained runner stays drained.
func (r *Runner) Drain() { r.drainOnce.Do(func() { close(r.drain) }) }

// Run takes rollouts and executes them until the queue is closed, MaxRollouts are done or the runner is drained, and
// then returns nil. When ctx ends, the contexts of the agents end, too, and Run returns nil once their attempts are
// reported as failed with the outcome cancelled. That takes at most two grace periods. An error means that the store
// rejects the runner, or was unavailable for MaxOutage.
func (r *Runner) Run(ctx context.Context) error {
	cfg := &r.shared.cfg
	quota := &rolloutQuota{unlimited: cfg.MaxRollouts == 0}
	quota.left.Store(int64(cfg.MaxRollouts))
	workers := cfg.Workers
	if !quota.unlimited {
		workers = min(workers, cfg.MaxRollouts)
	}
	run := newSuffix()
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			id := fmt.Sprintf("%s-%d-%s", cfg.WorkerPrefix, cfg.FirstWorker+i, run)
			// An agent's panic ends its attempt; that of another part, such as a Tracer, ends the worker.
			errs[i] = panics.Located(panics.Catch(func() error { return (&worker{shared: &r.shared, workerID: id}).run(ctx, r.drain, quota) }))
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// StepParams are the arguments of [Runner.Step].
type StepParams struct {
	agl.EnqueueRollout
	// Resources, if not nil, are added to the store first and used. They do not become the latest.
	Resources agl.Resources
}

// Step executes one rollout, bypassing the queue, and returns it as it ended. If its retry condition asks for another
// attempt, Step runs that, too. If the last attempt failed, the error wraps an [agl.OutcomeError]. The end of ctx
// cancels the attempt; if the rollout is then queued for another one, or if another runner took that, the error says
// so.
func (r *Runner) Step(ctx context.Context, p StepParams) (agl.AttemptedRollout, error) {
	store := r.shared.cfg.Store
	if p.Resources != nil {
		update, err := store.AddResources(ctx, agl.AddResourcesParams{Resources: p.Resources, KeepLatest: true})
		if err != nil {
			return agl.AttemptedRollout{}, fmt.Errorf("add resources: %w", err)
		}
		p.ResourcesID = agl.Some(update.ResourcesID)
	}
	id, release := r.stepWorker()
	defer release()
	rollout, err := store.StartRollout(ctx, agl.StartRolloutParams{EnqueueRollout: p.EnqueueRollout, WorkerID: agl.Some(id)})
	if err != nil {
		return agl.AttemptedRollout{}, fmt.Errorf("start rollout: %w", err)
	}
	for {
		final, failure, err := r.attempt(ctx, id, rollout)
		switch {
		case err != nil:
			return rollout, errors.Join(failure, err)
		case final.Status != agl.RolloutRequeuing && !final.Status.Finished():
			return final, errors.Join(failure, fmt.Errorf("rollout %q is %s: another runner has taken its next attempt", final.RolloutID, final.Status))
		case final.Status.Finished():
			return final, failure
		case ctx.Err() != nil:
			return final, errors.Join(failure, fmt.Errorf("rollout %q is queued for another attempt, which only a runner that takes rollouts will make", final.RolloutID))
		}
		rollout, err = store.StartAttempt(ctx, agl.StartAttemptParams{RolloutID: final.RolloutID, WorkerID: agl.Some(id)})
		if err != nil {
			return final, errors.Join(failure, fmt.Errorf("start another attempt of rollout %q, which is queued for one: %w", final.RolloutID, err))
		}
	}
}

// StepAttempt executes an attempt that was started elsewhere, by StartRollout, StartAttempt or DequeueRollouts of the
// store, and returns the rollout as it ended. The attempt must be live. If it has a worker id, this runner sends the
// heartbeats of that worker, which must not work on anything else; otherwise it gets one. When the attempt failed, the
// error wraps an [agl.OutcomeError]. A rollout that its retry condition queues again is left in the queue.
func (r *Runner) StepAttempt(ctx context.Context, rollout agl.AttemptedRollout) (agl.AttemptedRollout, error) {
	if rollout.Attempt == nil {
		return rollout, agl.Errorf(agl.CodeInvalid, "rollout %q: has no attempt; start one first", rollout.RolloutID)
	}
	if s := rollout.Attempt.Status; s != agl.AttemptPreparing && s != agl.AttemptRunning {
		return rollout, agl.Errorf(agl.CodeIllegalState, "attempt %q of rollout %q: is %s, must be preparing or running", rollout.Attempt.AttemptID, rollout.RolloutID, s)
	}
	id := rollout.Attempt.WorkerID.V
	if id == "" {
		var release func()
		id, release = r.stepWorker()
		defer release()
		attempt, err := r.shared.cfg.Store.UpdateAttempt(ctx, agl.UpdateAttemptParams{
			RolloutID: rollout.RolloutID, AttemptID: rollout.Attempt.AttemptID, WorkerID: &id,
		})
		if err != nil {
			return rollout, fmt.Errorf("take attempt %q of rollout %q: %w", rollout.Attempt.AttemptID, rollout.RolloutID, err)
		}
		rollout.Attempt = &attempt
	}
	final, failure, err := r.attempt(ctx, id, rollout)
	if err != nil {
		return rollout, errors.Join(failure, err)
	}
	return final, failure
}

// attempt executes an attempt, with heartbeats, and returns the resulting rollout and why the attempt failed. err
// says why the rollout could not be read.
func (r *Runner) attempt(ctx context.Context, workerID string, rollout agl.AttemptedRollout) (final agl.AttemptedRollout, failure, err error) {
	w := &worker{shared: &r.shared, workerID: workerID}
	stop := w.sendHeartbeats(ctx)
	failure = w.execute(ctx, rollout)
	stop()
	reportCtx, cancel := r.shared.reportContext(ctx)
	defer cancel()
	final, err = r.shared.cfg.Store.GetRollout(reportCtx, agl.GetRolloutParams{RolloutID: rollout.RolloutID})
	if err != nil {
		return final, failure, fmt.Errorf("read rollout: %w", err)
	}
	return final, failure, nil
}

// stepWorker lends a worker id. Concurrent steps need one each, but the store should not see a new worker for every
// step.
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
	return fmt.Sprintf("%s-step-%d-%s", r.shared.cfg.WorkerPrefix, n, r.suffix), func() {
		r.stepMu.Lock()
		defer r.stepMu.Unlock()
		r.idleSteps = append(r.idleSteps, n)
	}
}
