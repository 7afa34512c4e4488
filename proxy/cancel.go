package proxy

import (
	"errors"
	"slices"
)

// errCancelled cancels the calls of an attempt that is to end.
var errCancelled = errors.New("the attempt was cancelled")

// CancelAttempt ends the calls of an attempt that are running, which their
// backends see, and refuses further ones with 410. It returns how many were
// running. What they had got so far is recorded. The proxy does the same by
// itself for attempts that the store says were cancelled.
func (p *Proxy) CancelAttempt(rolloutID, attemptID string) (running int) {
	p.mu.Lock()
	for c := range p.live {
		if c.rolloutID == rolloutID && c.attemptID == attemptID {
			running++
		}
	}
	p.mu.Unlock()
	p.recorder.ledger.cancel(rolloutID, attemptID)
	return running
}

// cancel marks an attempt as cancelled and cancels its calls.
func (l *ledger) cancel(rolloutID, attemptID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.attempt(rolloutID, attemptID)
	a.cancelled = true
	for c := a.rollout.calls.next; c != &a.rollout.calls; c = c.next {
		if c.attempt == a && c.cancel != nil {
			c.cancel(errCancelled)
		}
	}
}

// isCancelled reports whether an attempt was cancelled.
func (l *ledger) isCancelled(rolloutID, attemptID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rollouts[rolloutID]
	if r == nil {
		return false
	}
	a := r.attempts[attemptID]
	return a != nil && a.cancelled
}

// cancelled takes the store's word on which attempts of a batch were cancelled.
func (r *recorder) cancelled(batch []*call, attemptIDs []string) {
	if len(attemptIDs) == 0 {
		return
	}
	for _, c := range batch {
		a := c.attempt
		if !slices.Contains(attemptIDs, a.id) || r.ledger.isCancelled(a.rollout.id, a.id) {
			continue
		}
		r.ledger.cancel(a.rollout.id, a.id)
		r.log.Info("attempt cancelled", "rollout", a.rollout.id, "attempt", a.id)
	}
}
