package store

import (
	"context"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// createCommand creates rollouts under given ids, unless they exist.
type createCommand struct {
	header

	rollouts []agl.Rollout
	start    []bool // of rollouts
	deleted  bool   // the batch deletes one of the rollouts: the next batch can create it again
	result   []agl.AttemptedRollout
}

func (c *createCommand) load(want *driver.LoadParams) {
	for i := range c.rollouts {
		want.Rollouts = append(want.Rollouts, c.rollouts[i].RolloutID)
	}
}

func (c *createCommand) run(w *unitOfWork) error {
	c.deleted = slices.ContainsFunc(c.rollouts, func(r agl.Rollout) bool {
		return w.rollouts[r.RolloutID] != nil && w.rollout(r.RolloutID) == nil
	})
	if c.deleted {
		return nil
	}
	c.result = make([]agl.AttemptedRollout, len(c.rollouts))
	for i := range c.rollouts {
		e := w.rollout(c.rollouts[i].RolloutID)
		switch {
		case e != nil:
		case c.start[i]:
			e = w.admit(&c.rollouts[i], agl.RolloutPreparing)
			w.startAttempt(e, agl.Null[string]{})
		default:
			e = w.admit(&c.rollouts[i], agl.RolloutQueuing)
		}
		c.result[i] = e.attempted()
	}
	return nil
}

// CreateRollouts implements agl.Store.
func (s *Store) CreateRollouts(ctx context.Context, p agl.CreateRolloutsParams) ([]agl.AttemptedRollout, error) {
	return do(ctx, s, "CreateRollouts", nil, func() ([]agl.AttemptedRollout, error) {
		c := &createCommand{rollouts: make([]agl.Rollout, len(p.Rollouts)), start: make([]bool, len(p.Rollouts))}
		for i := range p.Rollouts {
			given := &p.Rollouts[i]
			err := checkIDs(givenText{"rollout_id", given.RolloutID})
			if err == nil && given.RolloutID == "" {
				err = agl.Errorf(agl.CodeInvalid, "rollout_id: empty, must be an id")
			}
			if err == nil {
				c.rollouts[i], err = newRollout(&given.EnqueueRollout)
			}
			if err != nil {
				return nil, agl.Errorf(agl.ErrorCode(err), "rollouts[%d]: %w", i, err)
			}
			c.rollouts[i].RolloutID, c.start[i] = given.RolloutID, given.Start
		}
		err := s.submit(ctx, c)
		for c.deleted && err == nil {
			err = s.submit(ctx, c)
		}
		return c.result, err
	})
}
