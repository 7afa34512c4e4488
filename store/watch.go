package store

import (
	"context"
	"errors"
	"time"
)

const (
	// deadlineSlack makes the watch wake when a deadline is over for sure: a
	// limit must be exceeded, and a float64 timestamp rounds to a quarter of a
	// microsecond.
	deadlineSlack = time.Millisecond
	// watchRetry is how long the watch waits after the driver failed, and between
	// two times that it compares memory and database.
	watchRetry = time.Second
	// resyncPage is how many rollouts are asked for at once.
	resyncPage = 512
)

// watch is the background work: it fires deadlines, and passes on what other
// processes have changed.
func (s *Store) watch(ctx context.Context) {
	notices := s.driver.Capabilities().Notices
	var plan watchPlan
	for {
		timer, stop := s.watchTimer(&plan)
		var err error
		select {
		case <-ctx.Done():
			stop()
			return
		case <-timer:
			err = s.watchNow(ctx, &plan)
		case <-s.deadlines.wake:
		case <-s.doubt:
			plan.wanted = true
		case notice, ok := <-notices:
			switch {
			case !ok:
				notices = nil
			case notice.Resync:
				plan.wanted = true
			default:
				if err = s.notice(ctx, notice); err != nil {
					plan.wanted, plan.resyncFrom = true, s.now().Add(watchRetry)
				}
			}
		}
		stop()
		if err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "background work failed", "error", err)
		}
	}
}

// watchPlan is what the watch will do.
type watchPlan struct {
	wanted     bool      // everything is to be looked at
	resyncFrom time.Time // but not before
	expireFrom time.Time // deadlines fire, but not before
}

// watchTimer fires when the watch has something to do.
func (s *Store) watchTimer(plan *watchPlan) (timer <-chan time.Time, stop func()) {
	now := s.now()
	at, there := s.deadlines.next()
	wait := max(at.Sub(now)+deadlineSlack, plan.expireFrom.Sub(now))
	switch resync := plan.resyncFrom.Sub(now); {
	case plan.wanted && (!there || resync < wait):
		return s.clock.NewTimer(resync)
	case there:
		return s.clock.NewTimer(wait)
	}
	return nil, func() {}
}

// watchNow does what is due.
func (s *Store) watchNow(ctx context.Context, plan *watchPlan) error {
	err := s.expire(ctx)
	if err != nil {
		plan.expireFrom = s.now().Add(watchRetry)
	}
	if now := s.now(); plan.wanted && !now.Before(plan.resyncFrom) {
		// The next one waits in any case: failing writes must not make one each.
		plan.resyncFrom = now.Add(watchRetry)
		resyncErr := s.resync(ctx)
		plan.wanted = resyncErr != nil
		err = errors.Join(err, resyncErr)
	}
	return err
}

// suspect makes the watch compare what is in memory with the database: a write
// that failed may have happened.
func (s *Store) suspect() {
	select {
	case s.doubt <- struct{}{}:
	default:
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
	for len(n.Rollouts) > 0 {
		page := n.Rollouts[:min(len(n.Rollouts), resyncPage)]
		n.Rollouts = n.Rollouts[len(page):]
		if err := s.look(ctx, page); err != nil {
			return err
		}
	}
	s.signal.broadcast()
	if n.Queue {
		return s.submit(ctx, &recheckCommand{store: s})
	}
	return nil
}

// look reads rollouts that another process may have moved and takes their
// deadlines and their ends.
func (s *Store) look(ctx context.Context, ids []string) error {
	mark := s.deadlines.mark()
	found, err := s.driver.Rollouts(ctx, ids)
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(found))
	for i := range found {
		r := &found[i]
		known[r.RolloutID] = true
		if r.Attempt != nil {
			s.deadlines.setRead(&r.Rollout, r.Attempt, mark)
		}
		if r.Status.Finished() {
			s.waits.finished(r.RolloutID)
		}
	}
	for _, id := range ids {
		if !known[id] {
			s.deadlines.removeRead(id, mark)
			s.waits.finished(id)
		}
	}
	return nil
}

// resync looks at everything that somebody in this process waits for: all
// deadlines, all blocked waits and dequeues, all readers of events.
func (s *Store) resync(ctx context.Context) error {
	mark := s.deadlines.mark()
	live, err := s.driver.Live(ctx)
	if err != nil {
		return err
	}
	s.deadlines.replace(live, mark)
	return s.notice(ctx, Notice{Queue: true, Rollouts: s.waits.ids()})
}
