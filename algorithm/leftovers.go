package algorithm

import (
	"context"
	"errors"
	"fmt"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// CancelLeftovers cancels the rollouts that a process of the same run left
// unfinished in a store that outlived it: those whose metadata have the member
// "run" with the run's name.
func CancelLeftovers(ctx context.Context, store agl.Store, run string) error {
	page, err := store.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{
		agl.RolloutQueuing, agl.RolloutRequeuing, agl.RolloutPreparing, agl.RolloutRunning,
	}})
	if err != nil {
		return fmt.Errorf("look for rollouts of the interrupted run: %w", err)
	}
	for _, rollout := range page.Items {
		var tag struct {
			Run string `json:"run"`
		}
		if rawjson.Unmarshal(rollout.Metadata, &tag) != nil || tag.Run != run {
			continue
		}
		_, err := store.CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: rollout.RolloutID})
		if err != nil && !errors.Is(err, agl.ErrNotFound) {
			return fmt.Errorf("cancel rollout %s of the interrupted run: %w", rollout.RolloutID, err)
		}
	}
	return nil
}
