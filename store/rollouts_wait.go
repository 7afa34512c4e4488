package store

import (
	"context"
	"time"

	"github.com/agl-go/agl"
)

// WaitForRollouts implements agl.Store.
func (s *Store) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error) {
	return do(ctx, s, "WaitForRollouts", nil, func() ([]agl.Rollout, error) {
		finished, open, err := s.splitFinished(ctx, p.RolloutIDs)
		if err != nil || len(open) == 0 || p.Timeout.Valid && p.Timeout.V <= 0 {
			return finished, err
		}
		var timeout <-chan time.Time
		if p.Timeout.Valid {
			c, stop := s.clock.NewTimer(p.Timeout.V)
			defer stop()
			timeout = c
		}
		for len(open) > 0 {
			over, err := s.waitOnce(ctx, open, timeout)
			if err != nil {
				return nil, err
			}
			finished, open, err = s.splitFinished(ctx, p.RolloutIDs)
			if err != nil || over {
				return finished, err
			}
			// A rollout may have been reopened: then the wait continues.
		}
		return finished, nil
	})
}

// waitOnce waits until each of the rollouts has finished, or timeout.
func (s *Store) waitOnce(ctx context.Context, ids []string, timeout <-chan time.Time) (over bool, err error) {
	w := s.finishes.add(ids)
	defer s.finishes.remove(w)
	// Some may have finished before the wait was registered.
	_, open, err := s.splitFinished(ctx, ids)
	if err != nil {
		return false, err
	}
	if len(open) < len(ids) {
		return false, nil
	}
	select {
	case <-w.ready:
		return false, nil
	case <-timeout:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-s.closing:
		return false, errClosed()
	}
}

// splitFinished splits the rollouts that exist into those that have finished and the ids
// of the others.
func (s *Store) splitFinished(ctx context.Context, ids []string) (finished []agl.Rollout, open []string, err error) {
	found, err := s.driver.Rollouts(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	finished = []agl.Rollout{}
	for i := range found {
		if found[i].Status.Finished() {
			finished = append(finished, found[i].Rollout)
		} else {
			open = append(open, found[i].RolloutID)
		}
	}
	return finished, open, nil
}
