package store

import (
	"context"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// CreateRollouts implements agl.Store.
func (s *Store) CreateRollouts(ctx context.Context, p agl.CreateRolloutsParams) ([]agl.AttemptedRollout, error) {
	return do(ctx, s, "CreateRollouts", nil, func() (made []agl.AttemptedRollout, err error) {
		rollouts := make([]agl.Rollout, len(p.Rollouts))
		for i := range p.Rollouts {
			given := &p.Rollouts[i]
			err := checkIDs(givenText{"rollout_id", given.RolloutID})
			if err == nil && given.RolloutID == "" {
				err = agl.Errorf(agl.CodeInvalid, "rollout_id: empty, must be an id")
			}
			if err == nil {
				rollouts[i], err = newRollout(&given.EnqueueRollout)
			}
			if err != nil {
				return nil, agl.Errorf(agl.ErrorCode(err), "rollouts[%d]: %w", i, err)
			}
			rollouts[i].RolloutID = given.RolloutID
		}
		// made is nil if the batch has deleted one of the rollouts. Then try again: the next batch can create it.
		for made == nil && err == nil {
			made, err = submitWrite(ctx, s.committer, func(want *driver.LoadParams) {
				for i := range rollouts {
					want.Rollouts = append(want.Rollouts, rollouts[i].RolloutID)
				}
			}, func(w *unitOfWork) ([]agl.AttemptedRollout, error) {
				return w.createRollouts(p.Rollouts, rollouts), nil
			})
		}
		return made, err
	})
}

// createRollouts creates rollouts under given ids, unless they exist. If the batch has deleted one of them, it returns nil.
func (w *unitOfWork) createRollouts(given []agl.CreateRollout, rollouts []agl.Rollout) []agl.AttemptedRollout {
	if slices.ContainsFunc(rollouts, func(r agl.Rollout) bool { return w.rollouts[r.RolloutID] != nil && w.rollout(r.RolloutID) == nil }) {
		return nil
	}
	made := make([]agl.AttemptedRollout, len(rollouts))
	for i := range rollouts {
		e := w.rollout(rollouts[i].RolloutID)
		switch {
		case e != nil:
		case given[i].Start:
			e = w.admit(&rollouts[i], agl.RolloutPreparing)
			w.startAttempt(e, agl.Null[string]{})
		default:
			e = w.admit(&rollouts[i], agl.RolloutQueuing)
		}
		made[i] = e.attempted()
	}
	return made
}
