package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// StartRollout implements agl.Store.
func (c *Client) StartRollout(ctx context.Context, p agl.StartRolloutParams) (agl.AttemptedRollout, error) {
	return post[agl.AttemptedRollout](ctx, c, "StartRollout", wire.Rollouts, keyOr(p.IdempotencyKey), wire.StartRollout(&p))
}

// StartAttempt implements agl.Store.
func (c *Client) StartAttempt(ctx context.Context, p agl.StartAttemptParams) (agl.AttemptedRollout, error) {
	return post[agl.AttemptedRollout](ctx, c, "StartAttempt", wire.Attempts(wire.Segment(p.RolloutID)), keyOr(p.IdempotencyKey), wire.StartAttempt(&p))
}

// UpdateRollout implements agl.Store.
func (c *Client) UpdateRollout(ctx context.Context, p agl.UpdateRolloutParams) (agl.Rollout, error) {
	return call[agl.Rollout](ctx, c, operation{
		name: "UpdateRollout", method: http.MethodPost, path: wire.Rollout(wire.Segment(p.RolloutID)), body: wire.UpdateRollout(&p).AppendJSON(nil),
		// A retry could put a rollout into the queue again after somebody has claimed it, and it would run twice.
		unsent: p.Status != nil && p.Status.Queued(),
	})
}

// UpdateAttempt implements agl.Store.
func (c *Client) UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error) {
	return post[agl.Attempt](ctx, c, "UpdateAttempt", wire.Attempt(wire.Segment(p.RolloutID), wire.Segment(p.AttemptID)), "", wire.UpdateAttempt(&p))
}

// CancelRollout implements agl.Store.
func (c *Client) CancelRollout(ctx context.Context, p agl.CancelRolloutParams) (agl.Rollout, error) {
	return call[agl.Rollout](ctx, c, operation{name: "CancelRollout", method: http.MethodPost, path: wire.Cancel(wire.Segment(p.RolloutID))})
}

// DeleteRollout implements agl.Store. A retry that finds no such rollout has succeeded: only the first answer was
// lost.
func (c *Client) DeleteRollout(ctx context.Context, p agl.DeleteRolloutParams) error {
	return c.do(ctx, operation{name: "DeleteRollout", method: http.MethodDelete, path: wire.Rollout(wire.Segment(p.RolloutID)), gone: true}, nil)
}

// GetRollout implements agl.Store.
func (c *Client) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	return get[agl.AttemptedRollout](ctx, c, "GetRollout", wire.Rollout(wire.Segment(p.RolloutID)), fmt.Sprintf("Rollout %s not found", p.RolloutID))
}

// GetLatestAttempt implements agl.Store.
func (c *Client) GetLatestAttempt(ctx context.Context, p agl.GetLatestAttemptParams) (agl.Attempt, error) {
	path := wire.Attempt(wire.Segment(p.RolloutID), agl.LatestAttempt)
	return get[agl.Attempt](ctx, c, "GetLatestAttempt", path, fmt.Sprintf("No attempts found for rollout %s", p.RolloutID))
}

// QueryRollouts implements agl.Store.
func (c *Client) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	return search[agl.AttemptedRollout](ctx, c, "QueryRollouts", wire.SearchRollouts, wire.QueryRollouts(&p))
}

// QueryAttempts implements agl.Store.
func (c *Client) QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error) {
	return search[agl.Attempt](ctx, c, "QueryAttempts", wire.SearchAttempts(wire.Segment(p.RolloutID)), wire.QueryAttempts(&p))
}
