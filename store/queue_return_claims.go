package store

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// ReturnClaims implements agl.Store.
func (s *Store) ReturnClaims(ctx context.Context, p agl.ReturnClaimsParams) error {
	return s.run(ctx, "ReturnClaims", checkIDs(givenText{"idempotency_key", p.IdempotencyKey}), func() error {
		key := dequeueKey(agl.DequeueRolloutsParams{IdempotencyKey: p.IdempotencyKey})
		if p.RevokeKey && key == nil {
			return agl.Errorf(agl.CodeInvalid, "idempotency_key: got none, must be given to be revoked")
		}
		claims := attemptKeys(p.Claims)
		lost := len(claims) > 0 && !p.RevokeKey
		if len(claims) == 0 && key != nil {
			var err error
			if claims, err = s.claimsOf(ctx, key, p.RevokeKey); err != nil {
				return err
			}
		}
		if len(claims) == 0 {
			return nil
		}
		return s.giveBack(ctx, key, claims, p.RevokeKey, lost)
	})
}

// giveBack undoes claims, and forgets their key or, with revoke, revokes it. With lost, the claims were in an answer that was lost:
// they stay if another answer to the dequeue with the key has them.
func (s *Store) giveBack(ctx context.Context, key *idempotencyKey, claims []driver.AttemptKey, revoke, lost bool) error {
	_, err := submitLast(ctx, s.committer, func(want *driver.LoadParams) {
		key.load(want)
		want.Attempts = append(want.Attempts, claims...)
	}, func(w *unitOfWork) (struct{}, error) {
		switch {
		case lost && key.answeredAgain(w, claims) || !w.returnClaims(claims):
			return struct{}{}, nil
		case revoke:
			key.revoke(w)
		default:
			key.forget(w)
		}
		s.waiters.recheck = true
		return struct{}{}, nil
	})
	return err
}

// claimsOf returns the claims of the dequeue with this key. With revoke, a key that was not used yet is revoked.
func (s *Store) claimsOf(ctx context.Context, key *idempotencyKey, revoke bool) ([]driver.AttemptKey, error) {
	if !revoke { // revoking does not wait: it also stops a dequeue in flight
		unlock, err := s.keyLocks.lock(ctx, s.closing, key)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	return submitLast(ctx, s.committer, key.load, func(w *unitOfWork) ([]driver.AttemptKey, error) {
		record, used := w.keys[key.scope]
		if !used && revoke {
			key.revoke(w)
		}
		return record.Made, nil
	})
}

func attemptKeys(claims []agl.Claim) []driver.AttemptKey {
	keys := make([]driver.AttemptKey, 0, len(claims))
	for _, claim := range claims {
		keys = append(keys, driver.AttemptKey(claim))
	}
	return keys
}

// returnClaims undoes the claims on which nobody has worked, and reports whether there were any.
func (w *unitOfWork) returnClaims(claims []driver.AttemptKey) (some bool) {
	for _, claim := range claims {
		e := w.rollout(claim.RolloutID)
		if e == nil || e.latest == nil || !returnable(e.cur, e.latest.cur, claim.AttemptID) {
			continue
		}
		attempt := e.latest
		r := unclaim(*e.cur, attempt.cur)
		e.front = true
		w.setRollout(e, &r)
		w.releaseWorker(attempt.cur.WorkerID.V, attempt.cur)
		attempt.returned = true
		w.setAttempt(attempt, attempt.cur)
		w.dropSpans(claim)
		some = true
	}
	return some
}
