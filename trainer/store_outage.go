package trainer

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/store"
)

// storeOutage is for how long a call waits for the database of its own process, as a client does for a store server.
const storeOutage = time.Minute

// outlasting returns the store for an algorithm or a runner. PostgreSQL may restart during a run; a client of a store server would
// repeat its calls, too.
func outlasting(s agl.Store, cfg Config) agl.Store {
	_, own := s.(*store.Store)
	name, err := store.ParseDSN(cfg.Database)
	if !own || err != nil || name.Kind != store.Postgres {
		return s
	}
	return &outlast{Store: s, log: cfg.Logger}
}

// outlast repeats calls while the database is away: those for which nobody else does. Those that create or claim something have
// an idempotency key, as the failed one may have been committed.
type outlast struct {
	agl.Store

	log *slog.Logger
}

func again[T any](ctx context.Context, o *outlast, call func() (T, error)) (T, error) {
	delays := backoff.Exponential{First: 50 * time.Millisecond, Max: 3 * time.Second, Jitter: 1} //nolint:mnd // those of rest/client
	begin := time.Now()
	for n := 0; ; n++ {
		out, err := call()
		if !errors.Is(err, agl.ErrUnavailable) || time.Since(begin) >= storeOutage {
			return out, err
		}
		if n == 0 {
			o.log.WarnContext(ctx, "the store is away; its callers wait", "at_most", storeOutage, "error", err)
		}
		if delays.Wait(ctx, n) != nil {
			return out, err
		}
	}
}

func keyOr(key string) string {
	if key == "" {
		return rand.Text()
	}
	return key
}

// EnqueueRollouts implements [agl.Store].
func (o *outlast) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	p.IdempotencyKey = keyOr(p.IdempotencyKey)
	return again(ctx, o, func() ([]agl.Rollout, error) { return o.Store.EnqueueRollouts(ctx, p) })
}

// StartRollout implements [agl.Store].
func (o *outlast) StartRollout(ctx context.Context, p agl.StartRolloutParams) (agl.AttemptedRollout, error) {
	p.IdempotencyKey = keyOr(p.IdempotencyKey)
	return again(ctx, o, func() (agl.AttemptedRollout, error) { return o.Store.StartRollout(ctx, p) })
}

// AddResources implements [agl.Store].
func (o *outlast) AddResources(ctx context.Context, p agl.AddResourcesParams) (agl.ResourcesUpdate, error) {
	p.IdempotencyKey = keyOr(p.IdempotencyKey)
	return again(ctx, o, func() (agl.ResourcesUpdate, error) { return o.Store.AddResources(ctx, p) })
}

// UpdateResources implements [agl.Store].
func (o *outlast) UpdateResources(ctx context.Context, p agl.UpdateResourcesParams) (agl.ResourcesUpdate, error) {
	p.IdempotencyKey = keyOr(p.IdempotencyKey)
	return again(ctx, o, func() (agl.ResourcesUpdate, error) { return o.Store.UpdateResources(ctx, p) })
}

// DequeueRollouts implements [agl.Store].
func (o *outlast) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	p.IdempotencyKey = keyOr(p.IdempotencyKey)
	return again(ctx, o, func() (agl.DequeueResult, error) { return o.Store.DequeueRollouts(ctx, p) })
}

// CancelRollout implements [agl.Store].
func (o *outlast) CancelRollout(ctx context.Context, p agl.CancelRolloutParams) (agl.Rollout, error) {
	return again(ctx, o, func() (agl.Rollout, error) { return o.Store.CancelRollout(ctx, p) })
}

// GetRollout implements [agl.Store].
func (o *outlast) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	return again(ctx, o, func() (agl.AttemptedRollout, error) { return o.Store.GetRollout(ctx, p) })
}

// QueryRollouts implements [agl.Store].
func (o *outlast) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	return again(ctx, o, func() (agl.Page[agl.AttemptedRollout], error) { return o.Store.QueryRollouts(ctx, p) })
}

// QueryAttempts implements [agl.Store].
func (o *outlast) QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error) {
	return again(ctx, o, func() (agl.Page[agl.Attempt], error) { return o.Store.QueryAttempts(ctx, p) })
}

// WaitForRollouts implements [agl.Store].
func (o *outlast) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error) {
	return again(ctx, o, func() ([]agl.Rollout, error) { return o.Store.WaitForRollouts(ctx, p) })
}

// GetResources implements [agl.Store].
func (o *outlast) GetResources(ctx context.Context, p agl.GetResourcesParams) (agl.ResourcesUpdate, error) {
	return again(ctx, o, func() (agl.ResourcesUpdate, error) { return o.Store.GetResources(ctx, p) })
}

// GetLatestResources implements [agl.Store].
func (o *outlast) GetLatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	return again(ctx, o, func() (agl.ResourcesUpdate, error) { return o.Store.GetLatestResources(ctx) })
}

// QuerySpans implements [agl.Store].
func (o *outlast) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	return again(ctx, o, func() (agl.Page[agl.Span], error) { return o.Store.QuerySpans(ctx, p) })
}

// QueryShortSpans implements [agl.Store].
func (o *outlast) QueryShortSpans(ctx context.Context, p agl.QueryShortSpansParams) (agl.ShortSpans, error) {
	return again(ctx, o, func() (agl.ShortSpans, error) { return o.Store.QueryShortSpans(ctx, p) })
}

// outlastCollector is a collector over such a store. A call that is repeated gives the same rollouts.
type outlastCollector struct {
	agl.Collector

	outlast *outlast
}

// Collect implements [agl.Collector].
func (c outlastCollector) Collect(ctx context.Context, p agl.CollectParams) (agl.Collection, error) {
	return again(ctx, c.outlast, func() (agl.Collection, error) { return c.Collector.Collect(ctx, p) })
}
