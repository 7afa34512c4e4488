package client

import (
	"context"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// AddReward is [agl.AddReward] in one request, for callers whose key may send rewards but not read. Without an
// IdempotencyKey it makes one, so that a retry after a lost answer adds nothing.
func (c *Client) AddReward(ctx context.Context, p agl.AddRewardParams) (agl.AddedReward, error) {
	if p.RolloutID == "" {
		return agl.AddedReward{}, agl.Errorf(agl.CodeInvalid, "rollout_id: empty, must be the id of a rollout")
	}
	if _, err := agl.RewardAttributes(p.Rewards...); err != nil {
		return agl.AddedReward{}, err
	}
	p.IdempotencyKey = keyOr(p.IdempotencyKey)
	op := operation{name: "AddReward", method: http.MethodPost, path: wire.RewardsOf(wire.Segment(p.RolloutID)), body: wire.RewardOf(&p).AppendJSON(nil)}
	return call[agl.AddedReward](ctx, c, op)
}
