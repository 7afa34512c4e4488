package runner

import (
	"context"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
)

// sendHeartbeats sends heartbeats, at once and then in intervals, until stop is called. They tell the store that the
// worker is alive, and the answers whether the worker's attempt still is.
func (w *worker) sendHeartbeats(ctx context.Context) (stop func()) {
	if w.cfg.HeartbeatInterval < 0 {
		return func() {}
	}
	return w.sendEvery(ctx, w.cfg.HeartbeatInterval)
}

// sendMore sends further heartbeats until stop is called, if the rollout ends attempts that miss one or two of the worker's.
func (w *worker) sendMore(ctx context.Context, rollout *agl.Rollout) (stop func()) {
	const shortest = 100 * time.Millisecond
	limit := rollout.Config.UnresponsiveSeconds
	if !limit.Valid || limit.V >= 2*w.cfg.HeartbeatInterval.Seconds() { // also where none are to be sent
		return func() {}
	}
	return w.sendEvery(ctx, max(time.Duration(limit.V/3*float64(time.Second)), shortest))
}

func (w *worker) sendEvery(ctx context.Context, interval time.Duration) (stop func()) {
	// The last attempt still needs heartbeats while the runner stops.
	return background.Start(context.WithoutCancel(ctx), func(ctx context.Context) {
		ticker := time.Tick(interval)
		for w.beat(ctx) {
			select {
			case <-ticker:
			case <-ctx.Done():
				return
			}
		}
	})
}

// beat sends one heartbeat. The store answers with the attempt that the worker should be working on: another one, or
// none, means that the store has ended the current one. It returns false if the store does not know workers.
func (w *worker) beat(stopping context.Context) bool {
	ctx, cancel := context.WithTimeout(stopping, max(w.cfg.HeartbeatInterval, time.Second))
	defer cancel()
	log := w.cfg.Logger.With("worker_id", w.workerID)
	stats, err := w.snapshots.get(ctx)
	if err != nil {
		log.WarnContext(ctx, "heartbeat goes without a system snapshot", "error", err)
	}
	before := w.current.Load()
	answer, err := w.cfg.Store.UpdateWorker(ctx, agl.UpdateWorkerParams{WorkerID: w.workerID, HeartbeatStats: stats})
	switch {
	case agl.ErrorCode(err) == agl.CodeUnimplemented:
		log.InfoContext(ctx, "the store takes no heartbeats: it cannot tell when it has ended an attempt", "error", err)
		return false
	case err != nil && agl.IsContextError(err):
		// The first one tells of a store that takes requests and does not answer: nothing else does while the agents run.
		if stopping.Err() == nil && !w.unanswered.Swap(true) {
			log.WarnContext(ctx, "the store does not answer the worker's heartbeats; it may end its attempt as unresponsive", "error", err)
		}
		return true
	case err != nil:
		log.WarnContext(ctx, "heartbeat failed", "error", err)
		return true
	}
	if w.unanswered.Swap(false) {
		log.InfoContext(ctx, "the store answers the worker's heartbeats again")
	}
	// An answer that crossed the start or the end of an attempt says nothing about that attempt.
	if before == nil || before != w.current.Load() || before.ending.Load() || answer.CurrentAttemptID.V == before.attempt.AttemptID {
		return true
	}
	before.log.InfoContext(ctx, "the store has ended the attempt")
	before.lose()
	return true
}
