package storetest

import (
	"context"

	"github.com/agl-go/agl"
)

// Abstract returns a store that has only the abstract methods of Agent-lightning's
// LightningStore, and refuses all others: it has no workers, events, statistics or closing
// of the queue, cannot cancel, and does not wait for work. A run must work with it.
func Abstract(s agl.Store) agl.Store { return abstract{s: s} }

type abstract struct {
	agl.UnimplementedStore

	s agl.Store
}

func (a abstract) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	return a.s.EnqueueRollouts(ctx, p)
}

func (a abstract) StartRollout(ctx context.Context, p agl.StartRolloutParams) (agl.AttemptedRollout, error) {
	return a.s.StartRollout(ctx, p)
}

func (a abstract) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	p.Wait = 0
	return a.s.DequeueRollouts(ctx, p)
}

func (a abstract) StartAttempt(ctx context.Context, p agl.StartAttemptParams) (agl.AttemptedRollout, error) {
	return a.s.StartAttempt(ctx, p)
}

func (a abstract) UpdateRollout(ctx context.Context, p agl.UpdateRolloutParams) (agl.Rollout, error) {
	return a.s.UpdateRollout(ctx, p)
}

func (a abstract) UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error) {
	return a.s.UpdateAttempt(ctx, p)
}

func (a abstract) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	return a.s.GetRollout(ctx, p)
}

func (a abstract) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	return a.s.QueryRollouts(ctx, p)
}

func (a abstract) QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error) {
	return a.s.QueryAttempts(ctx, p)
}

func (a abstract) GetLatestAttempt(ctx context.Context, p agl.GetLatestAttemptParams) (agl.Attempt, error) {
	return a.s.GetLatestAttempt(ctx, p)
}

func (a abstract) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error) {
	return a.s.WaitForRollouts(ctx, p)
}

func (a abstract) AddResources(ctx context.Context, p agl.AddResourcesParams) (agl.ResourcesUpdate, error) {
	return a.s.AddResources(ctx, p)
}

func (a abstract) UpdateResources(ctx context.Context, p agl.UpdateResourcesParams) (agl.ResourcesUpdate, error) {
	return a.s.UpdateResources(ctx, p)
}

func (a abstract) GetResources(ctx context.Context, p agl.GetResourcesParams) (agl.ResourcesUpdate, error) {
	return a.s.GetResources(ctx, p)
}

func (a abstract) GetLatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	return a.s.GetLatestResources(ctx)
}

func (a abstract) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	return a.s.AddSpans(ctx, p)
}

func (a abstract) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	return a.s.QuerySpans(ctx, p)
}

func (a abstract) ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (int64, error) {
	return a.s.ReserveSequenceIDs(ctx, p)
}
