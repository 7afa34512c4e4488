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

// ReturnClaims implements agl.ClaimReturner.
func (s *Store) ReturnClaims(ctx context.Context, p agl.ReturnClaimsParams) (err error) {
	end, err := s.begin(ctx, "ReturnClaims")
	defer func() { end(err) }()
	if err != nil {
		return err
	}
	key := dequeueKey(agl.DequeueRolloutsParams{IdempotencyKey: p.IdempotencyKey})
	return s.submit(ctx, &returnCommand{claims: claimKeys(p.Rollouts), key: key, store: s})
}

type returnCommand struct {
	header

	claims []AttemptKey
	key    *keyed
	store  *Store
}

func (c *returnCommand) load(want *LoadParams) { want.Attempts = append(want.Attempts, c.claims...) }
func (*returnCommand) run(*work) error         { return nil }

func (c *returnCommand) finish(w *work) {
	if w.returnClaims(c.claims) {
		c.key.forget(w)
		c.store.recheck = true
	}
}

func claimKeys(claims []agl.AttemptedRollout) []AttemptKey {
	keys := make([]AttemptKey, 0, len(claims))
	for i := range claims {
		if a := claims[i].Attempt; a != nil {
			keys = append(keys, AttemptKey{claims[i].RolloutID, a.AttemptID})
		}
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
