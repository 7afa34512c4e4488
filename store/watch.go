package store

import (
	"context"
	"time"
)

const (
	// deadlineSlack makes the watch wake when a deadline is over for sure: a
	// limit must be exceeded, and a float64 timestamp rounds to a quarter of a
	// microsecond.
	deadlineSlack = time.Millisecond
	// expireRetry is how long the watch waits after the driver failed.
	expireRetry = time.Second
)

// watch is the background work: it fires deadlines, and passes on what other
// processes have changed.
func (s *Store) watch(ctx context.Context) {
	notices := s.driver.Capabilities().Notices
	var pause time.Duration
	for {
		var timer <-chan time.Time
		stop := func() {}
		if at, there := s.deadlines.next(); there {
			timer, stop = s.clock.NewTimer(max(at.Sub(s.now())+deadlineSlack, pause))
		}
		var err error
		select {
		case <-ctx.Done():
			stop()
			return
		case <-timer:
			err = s.expire(ctx)
		case <-s.deadlines.wake:
		case notice, ok := <-notices:
			if !ok {
				notices = nil
				break
			}
			err = s.notice(ctx, notice)
		}
		stop()
		pause = 0
		if err != nil && ctx.Err() == nil {
			s.log.Error("background work failed", "error", err)
			pause = expireRetry
		}
	}
}

// recheckCommand makes the next batch look at the queue for the waiters.
type recheckCommand struct {
	header

	store *Store
}

func (*recheckCommand) load(*LoadParams) {}

func (c *recheckCommand) run(*work) error {
	c.store.recheck = true
	return nil
}

// notice passes on what another process has committed.
func (s *Store) notice(ctx context.Context, n Notice) error {
	if len(n.Rollouts) > 0 {
		found, err := s.driver.Rollouts(ctx, n.Rollouts)
		if err != nil {
			return err
		}
		known := make(map[string]bool, len(found))
		for i := range found {
			r := &found[i]
			known[r.RolloutID] = true
			if r.Attempt != nil {
				s.deadlines.set(&r.Rollout, r.Attempt)
			}
			if r.Status.Finished() {
				s.waits.finished(r.RolloutID)
			}
		}
		for _, id := range n.Rollouts {
			if !known[id] {
				s.deadlines.remove(id)
				s.waits.finished(id)
			}
		}
	}
	s.signal.broadcast()
	if n.Queue {
		return s.submit(ctx, &recheckCommand{store: s})
	}
	return nil
}
