package storetest

import (
	"context"

	"github.com/agl-go/agl"
)

// Abstract returns a store that has only the abstract methods of Agent-lightning's
// LightningStore, and refuses all others: it has no workers, events, statistics or closing
// of the queue, cannot cancel, and does not wait for work. A run must work with it.
func Abstract(s agl.Store) agl.Store { return abstract{abstractMethods: s} }

type abstract struct {
	abstractMethods
	refused // one level deeper, so that the methods above hide its own
}

type refused struct{ agl.UnimplementedStore }

type abstractMethods interface {
	EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error)
	StartRollout(ctx context.Context, p agl.StartRolloutParams) (agl.AttemptedRollout, error)
	DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error)
	StartAttempt(ctx context.Context, p agl.StartAttemptParams) (agl.AttemptedRollout, error)
	UpdateRollout(ctx context.Context, p agl.UpdateRolloutParams) (agl.Rollout, error)
	UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error)
	GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error)
	QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error)
	QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error)
	GetLatestAttempt(ctx context.Context, p agl.GetLatestAttemptParams) (agl.Attempt, error)
	WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error)
	AddResources(ctx context.Context, p agl.AddResourcesParams) (agl.ResourcesUpdate, error)
	UpdateResources(ctx context.Context, p agl.UpdateResourcesParams) (agl.ResourcesUpdate, error)
	GetResources(ctx context.Context, p agl.GetResourcesParams) (agl.ResourcesUpdate, error)
	GetLatestResources(ctx context.Context) (agl.ResourcesUpdate, error)
	AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error)
	QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error)
	ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (int64, error)
}

func (a abstract) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	p.Wait = 0
	return a.abstractMethods.DequeueRollouts(ctx, p)
}
