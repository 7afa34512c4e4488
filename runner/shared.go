package runner

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
)

// shared is what the workers of a runner have in common.
type shared struct {
	cfg        Config
	withRunner func(context.Context) context.Context // adds what FromContext returns
	proxies    *proxyFlusher
	snapshots  *snapshots
	abandoned  atomic.Int64 // agents that still run although their attempts have ended
}

// attemptLog returns a logger that names an attempt.
func (s *shared) attemptLog(rolloutID, attemptID string) *slog.Logger {
	return s.cfg.Logger.With("rollout_id", rolloutID, "attempt_id", attemptID)
}

// reportContext returns the context for reports about an attempt. It outlives ctx by at most a grace period.
func (s *shared) reportContext(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ReportTimeout)
	stop := context.AfterFunc(ctx, func() {
		_ = backoff.Sleep(out, s.cfg.GracePeriod) // out ends earlier when it is no longer needed
		cancel()
	})
	return out, func() { stop(); cancel() }
}

// storeBackoff returns the schedule of retries while the store is unavailable.
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
