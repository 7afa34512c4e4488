package store

import (
	"context"
	"slices"

	"github.com/agl-go/agl"
)

// maxClaims is the most rollouts that one dequeue gets, so that others need not wait long for its commit.
const maxClaims = 1000

// DequeueRollouts implements agl.Store. It returns 1,000 rollouts at most, whatever the limit. If ctx ends during the wait, claims that were made for the call are returned
// to the queue, and the error is that of ctx.
func (s *Store) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	invalid := checkIDs(givenText{"worker_id", p.WorkerID.V}, givenText{"idempotency_key", p.IdempotencyKey})
	return do(ctx, s, "DequeueRollouts", invalid, func() (agl.DequeueResult, error) {
		key := dequeueKey(p)
		unlock, err := s.keyLocks.lock(ctx, s.closing, key)
		if err != nil {
			return agl.DequeueResult{}, err
		}
		defer unlock()
		p.Limit = min(p.Limit, maxClaims)
		c := &dequeueCommand{waiter: waiter{params: p, key: key}}
		if p.Wait > 0 {
			c.ready = make(chan struct{}, 1)
		}
		if err := s.submit(ctx, c); err != nil {
			return agl.DequeueResult{}, err
		}
		if !c.blocked {
			return s.claimed(ctx, c)
		}
		return s.awaitClaim(ctx, c)
	})
}

func (s *Store) awaitClaim(ctx context.Context, c *dequeueCommand) (agl.DequeueResult, error) {
	timeout, stop := s.clock.NewTimer(c.params.Wait)
	defer stop()
	select {
	case <-c.ready:
		return s.claimed(ctx, c)
	case <-ctx.Done():
		if err := s.leaveQueue(context.WithoutCancel(ctx), c); err != nil {
			return agl.DequeueResult{}, err
		}
		return agl.DequeueResult{}, ctx.Err()
	case <-timeout:
		return s.endWait(ctx, c, nil)
	case <-s.closing:
		return s.endWait(ctx, c, errClosed())
	}
}

// endWait ends a blocked dequeue whose caller still wants the answer. If nothing was claimed for it, the error is
// unserved.
func (s *Store) endWait(ctx context.Context, c *dequeueCommand, unserved error) (agl.DequeueResult, error) {
	leave := &leaveCommand{waiters: &s.waiters, waiter: &c.waiter, answers: true}
	err := s.submit(ctx, leave)
	switch {
	case !leave.unserved: // a batch before the command's has served it
	case err != nil:
		return agl.DequeueResult{}, err
	case leave.replay == nil && leave.failed == nil:
		return agl.DequeueResult{}, unserved
	default:
		c.result, c.replay, c.failed = agl.DequeueResult{}, leave.replay, leave.failed
	}
	return s.claimed(ctx, c)
}

// leaveQueue ends a blocked dequeue whose caller is gone, and returns its claims to the queue; even a commit that was
// reported to have failed may have made some. Claims that its key has got at another server stay: the caller has asked
// again there.
func (s *Store) leaveQueue(ctx context.Context, c *dequeueCommand) error {
	leave := &leaveCommand{waiters: &s.waiters, waiter: &c.waiter}
	if err := s.submit(ctx, leave); err != nil && leave.unserved {
		return err
	}
	claims := attemptKeys(slices.Concat(c.tried, agl.ClaimsOf(c.result.Rollouts...)))
	if len(claims) == 0 {
		return nil
	}
	return s.giveBack(ctx, c.key, claims, false, true)
}

// claimed returns the answer of a dequeue that was served.
func (s *Store) claimed(ctx context.Context, c *dequeueCommand) (agl.DequeueResult, error) {
	if c.replay == nil {
		return c.result, c.failed
	}
	claims, err := s.replayClaims(ctx, c.replay)
	return agl.DequeueResult{Rollouts: claims}, err
}
