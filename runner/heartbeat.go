package runner

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
)

// heartbeat tells the store that a worker is alive, and learns from the answers whether the worker's attempt still
// is.
type heartbeat struct {
	*shared

	workerID string
	current  atomic.Pointer[attempt] // nil between attempts
}

// start sends heartbeats, at once and then in intervals, until stop is called.
func (h *heartbeat) start(ctx context.Context) (stop func()) {
	interval := h.cfg.HeartbeatInterval
	if interval < 0 {
		return func() {}
	}
	// The last attempt still needs heartbeats while the runner stops.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			if !h.beat(ctx) {
				return
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// beat sends one heartbeat. The store answers with the attempt that the worker should be working on: another one, or
// none, means that the store has ended the current one. It returns false if the store does not know workers.
func (h *heartbeat) beat(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, max(h.cfg.HeartbeatInterval, time.Second))
	defer cancel()
	log := h.cfg.Logger.With("worker_id", h.workerID)
	stats, err := h.snapshots.get(ctx)
	if err != nil {
		log.WarnContext(ctx, "heartbeat goes without a system snapshot", "error", err)
	}
	before := h.current.Load()
	answer, err := h.cfg.Store.UpdateWorker(ctx, agl.UpdateWorkerParams{WorkerID: h.workerID, HeartbeatStats: stats})
	switch {
	case agl.ErrorCode(err) == agl.CodeUnimplemented:
		log.InfoContext(ctx, "the store takes no heartbeats: it cannot tell when it has ended an attempt", "error", err)
		return false
	case err != nil:
		if !agl.IsContextError(err) {
			log.WarnContext(ctx, "heartbeat failed", "error", err)
		}
		return true
	}
	// An answer that crossed the start or the end of an attempt says nothing about that attempt.
	if before == nil || before != h.current.Load() || before.ending.Load() || answer.CurrentAttemptID.V == before.attempt.AttemptID {
		return true
	}
	before.log.InfoContext(ctx, "the store has ended the attempt")
	before.lose()
	return true
}
