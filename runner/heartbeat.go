package runner

import (
	"context"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// startHeartbeats tells the store that the worker lives, at once and then in
// intervals, and listens to the answer. The function that it returns ends that.
func (w *worker) startHeartbeats(ctx context.Context) (stop func()) {
	interval := w.r.cfg.HeartbeatInterval
	if interval < 0 {
		return func() {}
	}
	// While the runner stops, its last attempt still needs heartbeats.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			w.beat(ctx)
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// beat sends one heartbeat. The worker that the store answers with names the
// attempt that it should be working on: another one, or none, says that the
// store has ended ours.
func (w *worker) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, max(w.r.cfg.HeartbeatInterval, time.Second))
	defer cancel()
	log := w.r.cfg.Logger
	stats, err := w.r.snapshot.get(ctx)
	if err != nil {
		log.WarnContext(ctx, "heartbeat goes without a system snapshot", "worker_id", w.id, "error", err)
	}
	// An answer that was under way when an attempt began, or ended, says nothing
	// about it.
	before := w.current.Load()
	answer, err := w.r.cfg.Store.UpdateWorker(ctx, agl.UpdateWorkerParams{WorkerID: w.id, HeartbeatStats: stats})
	if err != nil {
		if !agl.IsContextError(err) {
			log.WarnContext(ctx, "heartbeat failed", "worker_id", w.id, "error", err)
		}
		return
	}
	if before == nil || before != w.current.Load() || answer.CurrentAttemptID.V == before.attempt.AttemptID {
		return
	}
	log.InfoContext(ctx, "the store has ended the attempt", "worker_id", w.id,
		"rollout_id", before.rollout.RolloutID, "attempt_id", before.attempt.AttemptID)
	before.lose()
}

// snapshots shares one system snapshot among the workers of a process.
type snapshots struct {
	take   func(ctx context.Context) (jsontext.Value, error)
	maxAge time.Duration

	mu   sync.Mutex
	last jsontext.Value
	at   time.Time
}

func (s *snapshots) get(ctx context.Context) (jsontext.Value, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && time.Since(s.at) < s.maxAge {
		return s.last, nil
	}
	stats, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	s.last, s.at = stats, time.Now()
	return stats, nil
}
