package runner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
)

// worker is one loop that executes rollouts, one after the other, under a
// worker id of its own.
type worker struct {
	r       *Runner
	id      string
	current atomic.Pointer[attempt] // what heartbeats watch over
}

func (r *Runner) newWorker(id string) *worker { return &worker{r: r, id: id} }

func (w *worker) run(ctx context.Context, t *tickets) error {
	stop := w.startHeartbeats(ctx)
	defer stop()
	claiming, cancel := context.WithCancel(ctx)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		select {
		case <-w.r.drain:
			cancel()
		case <-claiming.Done():
		}
	}()
	defer func() { cancel(); <-drained }()

	for ctx.Err() == nil && t.take() {
		rollout, ok, err := w.claim(claiming)
		if err != nil || !ok {
			return err
		}
		if ctx.Err() != nil && w.giveBack(ctx, rollout) {
			return nil
		}
		if err := w.execute(ctx, rollout); err != nil {
			w.r.cfg.Logger.WarnContext(ctx, "attempt failed", "worker_id", w.id, "rollout_id", rollout.RolloutID,
				"attempt_id", rollout.Attempt.AttemptID, "outcome", agl.OutcomeOf(err).Kind, "error", err)
		}
	}
	return nil
}

// claim waits for a rollout. It returns false when there will be none: ctx
// ended or the queue is closed.
func (w *worker) claim(ctx context.Context) (agl.AttemptedRollout, bool, error) {
	cfg := w.r.cfg
	var failing time.Time // since when
	failures := 0
	for {
		begin := time.Now()
		res, err := cfg.Store.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some(w.id), Wait: cfg.DequeueWait})
		if len(res.Rollouts) > 0 && res.Rollouts[0].Attempt != nil {
			return res.Rollouts[0], true, nil
		}
		if res.Closed || ctx.Err() != nil {
			return agl.AttemptedRollout{}, false, nil //nolint:nilerr // the end of ctx is no failure
		}
		if err == nil {
			failing, failures = time.Time{}, 0
			if time.Since(begin) < cfg.DequeueWait/2 {
				// This store does not wait, so the worker does. If ctx ends, the next dequeue
				// says so.
				_ = backoff.Sleep(ctx, cfg.PollInterval)
			}
			continue
		}
		if !agl.Transient(err) {
			return agl.AttemptedRollout{}, false, fmt.Errorf("worker %s: dequeue: %w", w.id, err)
		}
		if failing.IsZero() {
			failing = begin
			cfg.Logger.WarnContext(ctx, "asking for work fails; trying on", "worker_id", w.id, "error", err)
		}
		if cfg.MaxOutage >= 0 && time.Since(failing) >= cfg.MaxOutage {
			return agl.AttemptedRollout{}, false, fmt.Errorf("worker %s: dequeue has failed for %s: %w", w.id, cfg.MaxOutage, err)
		}
		// If ctx ends, the next dequeue says so.
		_ = storeBackoff().Wait(ctx, failures)
		failures++
	}
}

// giveBack returns a claim that came when the runner had stopped already, if
// the store can take it back.
func (w *worker) giveBack(ctx context.Context, rollout agl.AttemptedRollout) bool {
	if !w.r.cfg.Store.Capabilities().ReturnClaims {
		return false
	}
	closing, cancel := w.r.closing(ctx)
	defer cancel()
	if err := w.r.cfg.Store.ReturnClaims(closing, agl.ReturnClaimsParams{Claims: agl.ClaimsOf(rollout)}); err != nil {
		w.r.cfg.Logger.WarnContext(ctx, "claim not given back", "worker_id", w.id, "rollout_id", rollout.RolloutID, "error", err)
		return false
	}
	return true
}

// Why the context of an attempt ended.
var (
	errLost     = errors.New("the store has ended the attempt: its rollout was cancelled, or it ran out of time")
	errTimeout  = errors.New("the attempt's timeout has passed")
	errShutdown = errors.New("the runner is stopping")
)

// execute runs one attempt and reports it. The error says why it failed.
func (w *worker) execute(ctx context.Context, rollout agl.AttemptedRollout) error {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(errShutdown) })
	defer stop()
	if t := rollout.Config.TimeoutSeconds; t.Valid {
		var cancelTimeout context.CancelFunc
		const most = 1e9 // seconds; more would overflow a Duration
		life, cancelTimeout = context.WithTimeoutCause(life, time.Duration(min(max(t.V, 0), most)*float64(time.Second)), errTimeout)
		defer cancelTimeout()
	}
	a := &attempt{r: w.r, worker: w.id, rollout: rollout.Rollout, attempt: *rollout.Attempt, cancel: cancel}
	w.current.Store(a)
	outcome := a.run(ctx, life)
	w.current.Store(nil)

	if a.lost.Load() {
		// The store has its say already; a report would overrule it.
		kind := agl.OutcomeCancelled
		if t := rollout.Config.TimeoutSeconds; t.Valid && float64(agl.TimestampOf(time.Now())-rollout.Attempt.StartTime) >= t.V {
			kind = agl.OutcomeTimeout
		}
		return &agl.OutcomeError{Kind: kind, Err: errLost}
	}
	err := a.report(ctx, outcome)
	if outcome.Kind == agl.OutcomeOK {
		return err
	}
	return errors.Join(&agl.OutcomeError{Kind: outcome.Kind, Err: errors.New(outcome.Message)}, err)
}
