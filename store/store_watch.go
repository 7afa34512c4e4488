package store

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

const (
	// deadlineSlack is added to every deadline, because a limit must be exceeded, and a float64 timestamp is exact
	// only to a quarter of a microsecond.
	deadlineSlack = time.Millisecond
	// watchRetry is the pause after a failure of the driver, and the shortest time between two resyncs.
	watchRetry = time.Second
	// resyncPage is the number of rollouts in one query.
	resyncPage = 512
)

// watch is the background goroutine that ends attempts at their deadlines, and passes on changes of other processes.
func (s *Store) watch(ctx context.Context) {
	notices := s.driver.Capabilities().Notices
	var plan watchPlan
	var failures retried
	for {
		timer, stop := s.watchTimer(&plan)
		var err error
		worked := false // something was done or attempted
		select {
		case <-ctx.Done():
			stop()
			return
		case <-timer:
			worked, err = true, s.watchNow(ctx, &plan)
		case <-s.deadlines.wake:
		case <-s.stale:
			plan.resync = true
		case <-s.clockMoved:
			worked, err = true, s.noteMovedClock(ctx)
		case notice, ok := <-notices:
			switch {
			case !ok:
				notices = nil
			case notice.Resync:
				plan.resync = true
			default:
				worked = true
				if err = s.notice(ctx, notice); err != nil {
					plan.resync, plan.resyncFrom = true, s.clock.Now().Add(watchRetry)
				}
			}
		}
		stop()
		if worked {
			failures.noteFailure(ctx, s.log, "background work failed", err)
		}
	}
}

// retried logs the failures of work that is tried again: each once, until another one or a success.
type retried struct{ last string }

// noteFailure logs a failure, unless it is the last one again; a nil error is a success. A database that is away is a warning.
func (r *retried) noteFailure(ctx context.Context, log *slog.Logger, message string, err error, attrs ...any) {
	switch {
	case err == nil:
		r.last = ""
	case ctx.Err() == nil && err.Error() != r.last:
		r.last = err.Error()
		level := slog.LevelError
		if agl.ErrorCode(err) == agl.CodeUnavailable {
			level = slog.LevelWarn
		}
		log.Log(ctx, level, message, append(attrs, "error", err)...)
	}
}

// watchPlan is what the background goroutine does next.
type watchPlan struct {
	resync     bool
	resyncFrom time.Time // not earlier
	expireFrom time.Time // not earlier
}

// watchTimer fires when the next step of the plan is due.
func (s *Store) watchTimer(plan *watchPlan) (timer <-chan time.Time, stop func()) {
	now := s.clock.Now()
	at, found := s.deadlines.next()
	wait := max(at.Sub(now)+deadlineSlack, plan.expireFrom.Sub(now))
	switch resync := plan.resyncFrom.Sub(now); {
	case plan.resync && (!found || resync < wait):
		return s.clock.NewTimer(resync)
	case found:
		return s.clock.NewTimer(wait)
	}
	return nil, func() {}
}

func (s *Store) watchNow(ctx context.Context, plan *watchPlan) error {
	err := s.expire(ctx)
	if err != nil {
		plan.expireFrom = s.clock.Now().Add(watchRetry)
	}
	if now := s.clock.Now(); plan.resync && !now.Before(plan.resyncFrom) {
		// Wait before the next resync, so that failing writes do not each cause one.
		plan.resyncFrom = now.Add(watchRetry)
		resyncErr := s.resync(ctx)
		plan.resync = resyncErr != nil
		err = errors.Join(err, resyncErr)
	}
	return err
}

// notice passes on a change that another process has committed.
func (s *Store) notice(ctx context.Context, n driver.Notice) error {
	for len(n.Rollouts) > 0 {
		page := n.Rollouts[:min(len(n.Rollouts), resyncPage)]
		n.Rollouts = n.Rollouts[len(page):]
		if err := s.refresh(ctx, page); err != nil {
			return err
		}
	}
	s.signal.broadcast()
	if n.Queue {
		_, err := submitWrite(ctx, s.committer, func(*driver.LoadParams) {}, func(*unitOfWork) (struct{}, error) {
			s.waiters.recheck = true // the batch offers the queue to the waiters
			return struct{}{}, nil
		})
		return err
	}
	return nil
}

// refresh reads rollouts that another process may have changed, sets their deadlines, and notifies the waits for
// those that have finished.
func (s *Store) refresh(ctx context.Context, ids []string) error {
	watermark := s.deadlines.watermark()
	found, err := s.driver.Rollouts(ctx, ids)
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(found))
	for i := range found {
		r := &found[i]
		known[r.RolloutID] = true
		if r.Attempt != nil {
			s.deadlines.setRead(&r.Rollout, r.Attempt, watermark)
		}
		if r.Status.Finished() {
			s.finishes.finished(r.RolloutID)
		}
	}
	for _, id := range ids {
		if !known[id] {
			s.deadlines.removeRead(id, watermark)
			s.finishes.finished(id)
		}
	}
	return nil
}

// resync compares everything that this process waits for with the database: all deadlines, all blocked waits and
// dequeues, all readers of events.
func (s *Store) resync(ctx context.Context) error {
	watermark := s.deadlines.watermark()
	live, err := s.driver.Live(ctx)
	if err != nil {
		return err
	}
	s.deadlines.replace(live, watermark)
	return s.notice(ctx, driver.Notice{Queue: true, Rollouts: s.finishes.ids()})
}
