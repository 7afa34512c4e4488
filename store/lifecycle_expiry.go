package store

import (
	"context"
	"slices"
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
	if c.steady && slices.ContainsFunc(c.ids, func(id string) bool { return c.missed(w, id) }) {
		c.deadlines.outageEnded(w.now)
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

// missed reports whether the store was away when the deadline of a rollout passed.
func (c *expireCommand) missed(w *unitOfWork, id string) bool {
	e := w.rollouts[id]
	if e == nil || e.cur == nil || e.latest == nil {
		return false
	}
	at, ok := deadline(e.cur, e.latest.cur, w.limits)
	return ok && at.Add(longestDelay) < w.now
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
