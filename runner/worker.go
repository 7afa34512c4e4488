package runner

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/backoff"
)

// worker executes rollouts, one after another, under its own worker id.
type worker struct {
	*shared

	workerID   string
	current    atomic.Pointer[attempt] // nil between attempts
	unanswered atomic.Bool             // the last heartbeat got no answer in time
}

// run takes rollouts and executes them until the quota is used up, the queue is
// closed, or drain is.
func (w *worker) run(ctx context.Context, drain <-chan struct{}, quota *rolloutQuota) error {
	stop := w.sendHeartbeats(ctx)
	defer stop()
	claiming, release := background.Until(ctx, drain)
	defer release()

	for ctx.Err() == nil && quota.take() {
		rollout, ok, err := w.claim(claiming)
		if err != nil || !ok {
			return err
		}
		if (ctx.Err() != nil || background.Closed(drain)) && w.giveBack(ctx, rollout) {
			return nil
		}
		if err := w.execute(ctx, rollout); err != nil {
			outcome, level := agl.OutcomeOf(err).Kind, slog.LevelWarn
			if outcome == agl.OutcomeCancelled {
				level = slog.LevelInfo // the runner was asked to stop
			}
			w.attemptLog(rollout.RolloutID, rollout.Attempt.AttemptID).Log(ctx, level, "attempt failed",
				"worker_id", w.workerID, "outcome", outcome, "error", err)
		}
	}
	return nil
}

// claim waits for a rollout. It returns false when there will be none: ctx has
// ended or the queue is closed.
func (w *worker) claim(ctx context.Context) (agl.AttemptedRollout, bool, error) {
	var failing time.Time // when dequeues began to fail
	failures := 0
	for {
		begin := time.Now()
		res, err := w.cfg.Store.DequeueRollouts(ctx, agl.DequeueRolloutsParams{
			Limit: 1, WorkerID: agl.Some(w.workerID), Wait: w.cfg.DequeueWait,
		})
		if len(res.Rollouts) > 0 && res.Rollouts[0].Attempt != nil {
			return res.Rollouts[0], true, nil
		}
		if res.Closed || ctx.Err() != nil {
			return agl.AttemptedRollout{}, false, nil //nolint:nilerr // the end of ctx is no failure
		}
		if err == nil {
			failing, failures = time.Time{}, 0
			if time.Since(begin) < w.cfg.DequeueWait/2 {
				// This store does not wait, so the worker does. If ctx ends, the next dequeue
				// says so.
				_ = backoff.Sleep(ctx, w.cfg.PollInterval)
			}
			continue
		}
		if !agl.Transient(err) {
			return agl.AttemptedRollout{}, false, fmt.Errorf("worker %q: dequeue: %w", w.workerID, err)
		}
		if failing.IsZero() {
			failing = begin
			w.cfg.Logger.WarnContext(ctx, "dequeue fails and is tried again", "worker_id", w.workerID, "error", err)
		}
		if w.cfg.MaxOutage >= 0 && time.Since(failing) >= w.cfg.MaxOutage {
			return agl.AttemptedRollout{}, false, fmt.Errorf("worker %q: dequeue has failed for %s: %w", w.workerID, w.cfg.MaxOutage, err)
		}
		// If ctx ends, the next dequeue reports it.
		_ = storeBackoff().Wait(ctx, failures)
		failures++
	}
}

// giveBack returns a claim that arrived when the runner was already stopping, if the store can take it back.
func (w *worker) giveBack(ctx context.Context, rollout agl.AttemptedRollout) bool {
	if !w.cfg.Store.Capabilities().ReturnClaims {
		return false
	}
	reportCtx, cancel := w.reportContext(ctx)
	defer cancel()
	if err := w.cfg.Store.ReturnClaims(reportCtx, agl.ReturnClaimsParams{Claims: agl.ClaimsOf(rollout)}); err != nil {
		w.attemptLog(rollout.RolloutID, rollout.Attempt.AttemptID).WarnContext(ctx, "the claim was not returned", "worker_id", w.workerID, "error", err)
		return false
	}
	return true
}

// execute runs one attempt and reports it. The error says why it failed.
func (w *worker) execute(ctx context.Context, rollout agl.AttemptedRollout) error {
	a, life, stop := newAttempt(ctx, w.shared, w.workerID, rollout)
	defer stop()
	w.current.Store(a)
	defer w.current.Store(nil)
	defer w.sendMore(ctx, &rollout.Rollout)()
	return a.execute(ctx, life)
}

// rolloutQuota is the number of rollouts that may still be taken. A worker takes one from it before it asks for a
// rollout, and keeps it until it gets a rollout.
type rolloutQuota struct {
	left      atomic.Int64
	unlimited bool
}

func (q *rolloutQuota) take() bool { return q.unlimited || q.left.Add(-1) >= 0 }
