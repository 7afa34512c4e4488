package store

import (
	"context"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// expireCommand ends the attempts of rollouts whose deadline has passed.
type expireCommand struct {
	header

	deadlines *deadlines
	ids       []string
	steady    bool // the clock does not jump: a deadline that passed long ago was missed
	expired   []agl.AttemptedRollout
}

func (c *expireCommand) load(want *driver.LoadParams) {
	want.Rollouts = append(want.Rollouts, c.ids...)
}

func (c *expireCommand) run(w *unitOfWork) error {
	c.expired = c.expired[:0]
	if at, missed := c.missed(w); missed {
		c.deadlines.outageEnded(max(at, w.limits.outages[1].end), w.now)
		w.limits = c.deadlines.limits()
	}
	for _, id := range c.ids {
		e := w.rollouts[id]
		// If this batch has changed the rollout, its deadline is set after the commit.
		changed := e != nil && (e.changed || e.latest != nil && e.latest.changed)
		if e == nil || e.cur == nil || e.latest == nil {
			if !changed {
				c.deadlines.remove(id)
			}
			continue
		}
		r, a, fired := deadlinePassed(*e.cur, *e.latest.cur, w.limits, w.now)
		switch {
		case fired:
			w.setRollout(e, &r)
			w.setAttempt(e.latest, &a)
			w.syncWorker(&a)
			c.expired = append(c.expired, e.attempted())
		case !changed:
			// Another process has changed it.
			c.deadlines.set(e.cur, e.latest.cur)
		}
	}
	return nil
}

// longestDelay is how late a store may be with a deadline. Later, its process was suspended or its disk hung, and so were
// the heartbeats that it had to store.
const longestDelay = 2 * time.Second

// missed returns the earliest deadline of a silent attempt if the store was away when it passed. An attempt whose grace
// period is missed gets no other one, so it ends also at a store that is always late.
func (c *expireCommand) missed(w *unitOfWork) (first agl.Timestamp, missed bool) {
	if !c.steady {
		return 0, false
	}
	for _, id := range c.ids {
		if e := w.rollouts[id]; e != nil && e.cur != nil && e.latest != nil {
			if at, ok := silenceDeadline(e.cur, e.latest.cur, w.limits); ok && at.Add(longestDelay) < w.now && (!missed || at < first) {
				first, missed = at, true
			}
		}
	}
	return first, missed
}

// expire ends the attempts whose deadline has passed.
func (c *committer) expire(ctx context.Context) error {
	for {
		ids := c.deadlines.due(c.clock.Now(), maxBatch)
		if len(ids) == 0 {
			return nil
		}
		_, steady := c.clock.(*steadyClock)
		cmd := &expireCommand{deadlines: &c.deadlines, ids: ids, steady: steady}
		if err := c.submit(ctx, cmd); err != nil {
			return err
		}
		for i := range cmd.expired {
			r := &cmd.expired[i]
			outcome, _ := r.Attempt.Outcome()
			c.log.WarnContext(ctx, "attempt ended by the store", "rollout_id", r.RolloutID, "attempt_id", r.Attempt.AttemptID,
				"attempt_status", r.Attempt.Status, "rollout_status", r.Status, "error", outcome.Message)
		}
		if len(ids) < maxBatch {
			return nil
		}
	}
}
