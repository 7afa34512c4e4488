package store

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// attemptOf finds the attempt that an update names.
func (w *unitOfWork) attemptOf(p *agl.UpdateAttemptParams) (*rolloutEntry, *attemptEntry, error) {
	r := w.rollout(p.RolloutID)
	switch {
	case r == nil:
		return nil, nil, errRollout(p.RolloutID)
	case r.latest == nil:
		return nil, nil, errNoAttempts(p.RolloutID)
	case p.AttemptID == agl.LatestAttempt:
		return r, r.latest, nil
	}
	a := w.attempt(p.RolloutID, p.AttemptID)
	if a == nil {
		return nil, nil, errAttempt(p.RolloutID, p.AttemptID)
	}
	return r, a, nil
}

func (w *unitOfWork) updateAttempt(p *agl.UpdateAttemptParams) (agl.Attempt, error) {
	re, ae, err := w.attemptOf(p)
	if err != nil {
		return agl.Attempt{}, err
	}
	r, a := *re.cur, *ae.cur
	worker := a.WorkerID.V
	if p.WorkerID != nil {
		a.WorkerID = agl.Some(*p.WorkerID)
	}
	if p.LastHeartbeatTime != nil {
		// The caller's clock may be ahead, and the next process continues after the latest heartbeat; see [Store.resumeClock].
		a.LastHeartbeatTime = agl.Some(min(*p.LastHeartbeatTime, w.now.Add(clockTolerance)))
	}
	if p.Status != nil {
		r, a = statusReported(r, a, re.latest == ae, *p.Status, objectOrNil(p.Metadata), w.now)
	} else {
		a.Metadata = replaceMetadata(&a, r.Status, objectOrNil(p.Metadata))
	}
	if r.Status != re.cur.Status || r.EndTime != re.cur.EndTime {
		w.setRollout(re, &r)
	}
	w.setAttempt(ae, &a)
	if worker != a.WorkerID.V {
		w.releaseWorker(worker, &a)
	}
	if p.Status != nil || p.WorkerID != nil {
		w.syncWorker(&a)
	}
	return a, nil
}

// UpdateAttempt implements agl.Store.
func (s *Store) UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error) {
	return do(ctx, s, "UpdateAttempt", checkObject("metadata", p.Metadata, false), func() (agl.Attempt, error) {
		if p.Status != nil && !p.Status.Valid() {
			return agl.Attempt{}, agl.Errorf(agl.CodeInvalid, "status: got %q, must be one of %v", *p.Status, agl.AttemptStatuses())
		}
		if p.WorkerID != nil {
			if err := checkIDs(givenText{"worker_id", *p.WorkerID}); err != nil {
				return agl.Attempt{}, err
			}
		}
		return submitWrite(ctx, s.committer, func(want *driver.LoadParams) {
			want.Rollouts = append(want.Rollouts, p.RolloutID)
			if p.AttemptID != agl.LatestAttempt {
				want.Attempts = append(want.Attempts, driver.AttemptKey{RolloutID: p.RolloutID, AttemptID: p.AttemptID})
			}
			if p.WorkerID != nil && *p.WorkerID != "" {
				want.Workers = append(want.Workers, *p.WorkerID)
			}
		}, func(w *unitOfWork) (agl.Attempt, error) { return w.updateAttempt(&p) })
	})
}

// GetLatestAttempt implements agl.Store.
func (s *Store) GetLatestAttempt(ctx context.Context, p agl.GetLatestAttemptParams) (agl.Attempt, error) {
	return do(ctx, s, "GetLatestAttempt", nil, func() (agl.Attempt, error) {
		found, err := s.driver.Rollouts(ctx, []string{p.RolloutID})
		switch {
		case err != nil:
			return agl.Attempt{}, err
		case len(found) == 0 || found[0].Attempt == nil:
			return agl.Attempt{}, errNoAttempts(p.RolloutID)
		}
		return *found[0].Attempt, nil
	})
}

// QueryAttempts implements agl.Store.
func (s *Store) QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error) {
	return do(ctx, s, "QueryAttempts", checkQuery(&p.Paging, "", sortableAttempts), func() (agl.Page[agl.Attempt], error) {
		return s.driver.QueryAttempts(ctx, p)
	})
}
