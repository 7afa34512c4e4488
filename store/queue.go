package store

import (
	"context"

	"github.com/agl-go/agl"
)

type queueCommand struct {
	header

	closed bool
}

func (*queueCommand) load(*LoadParams) {}

func (c *queueCommand) run(w *work) error {
	if w.queueClosed == c.closed {
		return nil
	}
	w.queueClosed = c.closed
	w.changes.QueueClosed = agl.Some(c.closed)
	status := "open"
	if c.closed {
		status = "closed"
	}
	w.changes.Events = append(w.changes.Events, agl.Event{Kind: agl.EventQueue, Status: status})
	return nil
}

// CloseQueue implements agl.Store.
func (s *Store) CloseQueue(ctx context.Context) (err error) {
	end, err := s.begin(ctx, "CloseQueue")
	defer func() { end(err) }()
	if err != nil {
		return err
	}
	return s.submit(ctx, &queueCommand{closed: true})
}

// OpenQueue implements agl.Store.
func (s *Store) OpenQueue(ctx context.Context) (err error) {
	end, err := s.begin(ctx, "OpenQueue")
	defer func() { end(err) }()
	if err != nil {
		return err
	}
	return s.submit(ctx, &queueCommand{})
}

// ReturnClaims implements agl.Store.
func (s *Store) ReturnClaims(ctx context.Context, p agl.ReturnClaimsParams) (err error) {
	end, err := s.begin(ctx, "ReturnClaims")
	defer func() { end(err) }()
	if err != nil {
		return err
	}
	if err := checkIDs(givenID{"idempotency_key", p.IdempotencyKey}); err != nil {
		return err
	}
	key := dequeueKey(agl.DequeueRolloutsParams{IdempotencyKey: p.IdempotencyKey})
	if p.RevokeKey && key == nil {
		return agl.Errorf(agl.CodeInvalid, "idempotency_key: got none, must be given to be revoked")
	}
	c := &returnCommand{store: s, key: key, revoke: p.RevokeKey, claims: attemptKeys(p.Claims)}
	if len(c.claims) == 0 && key != nil {
		if c.claims, err = s.claimsOf(ctx, key, p.RevokeKey); err != nil {
			return err
		}
	}
	if len(c.claims) == 0 {
		return nil
	}
	return s.submit(ctx, c)
}

// claimsOf returns what the dequeue with the key has claimed. With revoke, a key
// that has not been used is revoked.
func (s *Store) claimsOf(ctx context.Context, key *keyed, revoke bool) ([]AttemptKey, error) {
	if !revoke { // a revoked key stops a dequeue that is under way, too
		land, err := s.flights.enter(ctx, s.closing, key)
		if err != nil {
			return nil, err
		}
		defer land()
	}
	c := &claimsCommand{key: key, revoke: revoke}
	err := s.submit(ctx, c)
	return c.claims, err
}

// claimsCommand reads the claims of a dequeue by its key.
type claimsCommand struct {
	header

	key    *keyed
	revoke bool
	claims []AttemptKey
}

func (c *claimsCommand) load(want *LoadParams) { c.key.load(want) }
func (*claimsCommand) run(*work) error         { return nil }

// finish looks when the dequeues of the batch have made their claims.
func (c *claimsCommand) finish(w *work) {
	record, used := w.keys[c.key.scope]
	c.claims = record.Made
	if !used && c.revoke {
		c.key.revoke(w)
	}
}

// returnCommand undoes claims.
type returnCommand struct {
	header

	store  *Store
	claims []AttemptKey
	key    *keyed
	revoke bool
}

func (c *returnCommand) load(want *LoadParams) { want.Attempts = append(want.Attempts, c.claims...) }
func (*returnCommand) run(*work) error         { return nil }

func (c *returnCommand) finish(w *work) {
	if !w.returnClaims(c.claims) {
		return
	}
	c.store.recheck = true
	if c.revoke {
		c.key.revoke(w)
	} else {
		c.key.forget(w)
	}
}

func attemptKeys(claims []agl.Claim) []AttemptKey {
	keys := make([]AttemptKey, 0, len(claims))
	for _, claim := range claims {
		keys = append(keys, AttemptKey(claim))
	}
	return keys
}

// returnClaims undoes claims on which nobody has worked and reports whether
// there were any.
func (w *work) returnClaims(claims []AttemptKey) (some bool) {
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
		some = true
	}
	return some
}
