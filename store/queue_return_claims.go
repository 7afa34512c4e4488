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
		c := &returnCommand{waiters: &s.waiters, key: key, revoke: p.RevokeKey, claims: attemptKeys(p.Claims)}
		c.lost = len(c.claims) > 0 && !p.RevokeKey
		if len(c.claims) == 0 && key != nil {
			var err error
			if c.claims, err = s.claimsOf(ctx, key, p.RevokeKey); err != nil {
				return err
			}
		}
		if len(c.claims) == 0 {
			return nil
		}
		return s.submit(ctx, c)
	})
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
	c := &claimsCommand{key: key, revoke: revoke}
	err := s.submit(ctx, c)
	return c.claims, err
}

// claimsCommand reads the claims of a dequeue by its key.
type claimsCommand struct {
	header

	key    *idempotencyKey
	revoke bool
	claims []driver.AttemptKey
}

func (c *claimsCommand) load(want *driver.LoadParams) { c.key.load(want) }
func (*claimsCommand) run(*unitOfWork) error          { return nil }

func (c *claimsCommand) finish(w *unitOfWork) {
	record, used := w.keys[c.key.scope]
	c.claims = record.Made
	if !used && c.revoke {
		c.key.revoke(w)
	}
}

// returnCommand undoes claims.
type returnCommand struct {
	header

	waiters *waiters
	claims  []driver.AttemptKey
	key     *idempotencyKey
	revoke  bool
	lost    bool // the claims were in a lost answer: if another answer to the dequeue with the key has them, they stay
}

func (c *returnCommand) load(want *driver.LoadParams) {
	c.key.load(want)
	want.Attempts = append(want.Attempts, c.claims...)
}
func (*returnCommand) run(*unitOfWork) error { return nil }

func (c *returnCommand) finish(w *unitOfWork) {
	if c.lost && c.key.answeredAgain(w, c.claims) || !w.returnClaims(c.claims) {
		return
	}
	c.waiters.recheck = true
	if c.revoke {
		c.key.revoke(w)
	} else {
		c.key.forget(w)
	}
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
