package sft

import (
	"context"
	"fmt"
	"iter"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// Rollouts yields finished rollouts, oldest first, and stops after the first error.
type Rollouts func(ctx context.Context) iter.Seq2[algorithm.Episode, error]

// storedPage is the number of rollouts of one query.
const storedPage = 256

// Stored yields the rollouts of a store that succeeded.
func Stored(store agl.Store) Rollouts {
	return func(ctx context.Context) iter.Seq2[algorithm.Episode, error] {
		return func(yield func(algorithm.Episode, error) bool) {
			query := func(ctx context.Context, p agl.Paging) (agl.Page[agl.AttemptedRollout], error) {
				return store.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}, Paging: p})
			}
			for r, err := range agl.Pages(ctx, agl.Paging{SortBy: "start_time"}, storedPage, query) {
				if err != nil {
					yield(algorithm.Episode{}, fmt.Errorf("read stored rollouts: %w", err))
					return
				}
				if !usable(&r.Rollout) {
					continue
				}
				episode, err := algorithm.Read(ctx, store, *r)
				if !yield(episode, err) || err != nil {
					return
				}
			}
		}
	}
}

// usable reports whether a rollout succeeded and was not run for validation.
func usable(r *agl.Rollout) bool {
	return r.Status == agl.RolloutSucceeded && r.Mode != agl.ModeVal && r.Mode != agl.ModeTest
}
