package store

import (
	"context"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// replayAttempts reads what the command of an idempotency record created, in its current state, without what has been
// deleted since.
func (s *Store) replayAttempts(ctx context.Context, record *driver.IdempotencyRecord) ([]agl.AttemptedRollout, error) {
	if len(record.Made) == 0 {
		return nil, nil
	}
	ids := make([]string, len(record.Made))
	made := make(map[string]string, len(record.Made))
	for i, key := range record.Made {
		ids[i] = key.RolloutID
		made[key.RolloutID] = key.AttemptID
	}
	found, err := s.driver.Rollouts(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := found[:0]
	for _, r := range found {
		id := made[r.RolloutID]
		switch {
		case id == "":
			r.Attempt = nil
		case r.Attempt == nil || r.Attempt.AttemptID != id:
			attempts, err := s.driver.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: r.RolloutID, Paging: agl.Paging{Limit: -1}})
			if err != nil {
				return nil, err
			}
			r.Attempt = nil
			for i := range attempts.Items {
				if attempts.Items[i].AttemptID == id {
					r.Attempt = &attempts.Items[i]
				}
			}
			if r.Attempt == nil {
				continue
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// replayClaims reads the claims of a dequeue that is repeated. A repeat may come after an outage in which an attempt has passed
// its deadline and somebody else got the rollout, or in which that was cancelled: to run such an attempt would be work for nothing.
func (s *Store) replayClaims(ctx context.Context, record *driver.IdempotencyRecord) ([]agl.AttemptedRollout, error) {
	if len(record.Made) == 0 {
		return nil, nil
	}
	ids := make([]string, len(record.Made))
	for i, key := range record.Made {
		ids[i] = key.RolloutID
	}
	found, err := s.driver.Rollouts(ctx, ids)
	return slices.DeleteFunc(found, func(r agl.AttemptedRollout) bool {
		return r.Status == agl.RolloutCancelled || r.Attempt == nil ||
			!slices.Contains(record.Made, driver.AttemptKey{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID})
	}), err
}

// replayAttempt is replayAttempts for a command that created one rollout.
func (s *Store) replayAttempt(ctx context.Context, record *driver.IdempotencyRecord) (agl.AttemptedRollout, error) {
	found, err := s.replayAttempts(ctx, record)
	switch {
	case err != nil:
		return agl.AttemptedRollout{}, err
	case len(found) == 0:
		return agl.AttemptedRollout{}, errRollout(record.Made[0].RolloutID)
	}
	return found[0], nil
}

// submitOnce is submitWrite for a write with an idempotency key, which may be nil. apply records the key. For a repeat, apply is not
// called: the answer is what again reads by the record of the first write.
func submitOnce[T any](ctx context.Context, c *committer, key *idempotencyKey, wants func(*driver.LoadParams), apply func(*unitOfWork) (T, error), again func(*driver.IdempotencyRecord) (T, error)) (T, error) {
	var earlier *driver.IdempotencyRecord
	out, err := submitWrite(ctx, c, func(want *driver.LoadParams) {
		key.load(want)
		wants(want)
	}, func(w *unitOfWork) (out T, err error) {
		if earlier, err = key.replay(w); err != nil || earlier != nil {
			return out, err
		}
		return apply(w)
	})
	if err == nil && earlier != nil {
		return again(earlier)
	}
	return out, err
}
