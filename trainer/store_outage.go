package trainer

import (
	"cmp"
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

// again makes a call until the database answers it.
func again[P, T any](ctx context.Context, o *outlast, p P, method func(context.Context, P) (T, error)) (T, error) {
	delays := backoff.Exponential{First: 50 * time.Millisecond, Max: 3 * time.Second, Jitter: 1} //nolint:mnd // those of rest/client
	begin := time.Now()
	for n := 0; ; n++ {
		out, err := method(ctx, p)
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

func (o *outlast) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	p.IdempotencyKey = cmp.Or(p.IdempotencyKey, rand.Text())
	return again(ctx, o, p, o.Store.EnqueueRollouts)
}

func (o *outlast) StartRollout(ctx context.Context, p agl.StartRolloutParams) (agl.AttemptedRollout, error) {
	p.IdempotencyKey = cmp.Or(p.IdempotencyKey, rand.Text())
	return again(ctx, o, p, o.Store.StartRollout)
}

func (o *outlast) AddResources(ctx context.Context, p agl.AddResourcesParams) (agl.ResourcesUpdate, error) {
	p.IdempotencyKey = cmp.Or(p.IdempotencyKey, rand.Text())
	return again(ctx, o, p, o.Store.AddResources)
}

func (o *outlast) UpdateResources(ctx context.Context, p agl.UpdateResourcesParams) (agl.ResourcesUpdate, error) {
	p.IdempotencyKey = cmp.Or(p.IdempotencyKey, rand.Text())
	return again(ctx, o, p, o.Store.UpdateResources)
}

func (o *outlast) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	p.IdempotencyKey = cmp.Or(p.IdempotencyKey, rand.Text())
	return again(ctx, o, p, o.Store.DequeueRollouts)
}

func (o *outlast) CancelRollout(ctx context.Context, p agl.CancelRolloutParams) (agl.Rollout, error) {
	return again(ctx, o, p, o.Store.CancelRollout)
}

func (o *outlast) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	return again(ctx, o, p, o.Store.GetRollout)
}

func (o *outlast) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	return again(ctx, o, p, o.Store.QueryRollouts)
}

func (o *outlast) QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error) {
	return again(ctx, o, p, o.Store.QueryAttempts)
}

func (o *outlast) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error) {
	return again(ctx, o, p, o.Store.WaitForRollouts)
}

func (o *outlast) GetResources(ctx context.Context, p agl.GetResourcesParams) (agl.ResourcesUpdate, error) {
	return again(ctx, o, p, o.Store.GetResources)
}

func (o *outlast) GetLatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	return again(ctx, o, struct{}{}, func(ctx context.Context, _ struct{}) (agl.ResourcesUpdate, error) {
		return o.Store.GetLatestResources(ctx)
	})
}

func (o *outlast) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	return again(ctx, o, p, o.Store.QuerySpans)
}

func (o *outlast) QueryShortSpans(ctx context.Context, p agl.QueryShortSpansParams) (agl.ShortSpans, error) {
	return again(ctx, o, p, o.Store.QueryShortSpans)
}

// outlastCollector is a collector over such a store. A call that is repeated gives the same rollouts.
type outlastCollector struct {
	agl.Collector

	outlast *outlast
}

func (c outlastCollector) Collect(ctx context.Context, p agl.CollectParams) (agl.Collection, error) {
	return again(ctx, c.outlast, p, c.Collector.Collect)
}
