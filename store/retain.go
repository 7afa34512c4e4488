package store

import (
	"context"
	"time"

	"github.com/agl-go/agl"
)

// Retain bounds what is kept of finished rollouts: beyond it their spans are
// evicted, those that ended first first. The rollouts and their attempts stay.
type Retain struct {
	// Finished is how long spans are kept after the end of their rollout; 0 is
	// for ever.
	Finished time.Duration
	// Bytes is how large all spans together may become, as they were sent; 0 is no
	// limit. Those of rollouts that have not finished count, and stay.
	Bytes int64
}

const (
	// retainEvery is how often the janitor looks.
	retainEvery = 10 * time.Second
	// retainBatch is how many rollouts it evicts in one write, so that others do
	// not wait for it.
	retainBatch = 64
)

// janitor evicts what is not to be kept.
func (s *Store) janitor(ctx context.Context, retain Retain) {
	for {
		if err := s.tidy(ctx, retain); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "evicting old spans failed", "error", err)
		}
		timer, stop := s.clock.NewTimer(retainEvery)
		select {
		case <-timer:
		case <-ctx.Done():
			stop()
			return
		}
	}
}

// tidy evicts all that is not to be kept now, in small batches.
func (s *Store) tidy(ctx context.Context, retain Retain) error {
	for {
		list, err := s.driver.Evictable(ctx, retainBatch)
		if err != nil {
			return err
		}
		c := &evictCommand{rollouts: retain.beyond(list, agl.TimestampOf(s.now()))}
		if len(c.rollouts) == 0 {
			return nil
		}
		if err := s.submit(ctx, c); err != nil {
			return err
		}
		if c.evicted == 0 {
			return nil // all of them were reopened meanwhile
		}
		s.log.InfoContext(ctx, "spans were evicted", "rollouts", c.evicted, "bytes", c.bytes)
	}
}

// beyond returns those at the head of the list that are not to be kept.
func (r Retain) beyond(list EvictableList, now agl.Timestamp) []EvictableRollout {
	left := list.SpanBytes
	for i, e := range list.Rollouts {
		old := r.Finished > 0 && now.Sub(e.EndTime) > r.Finished
		if !old && (r.Bytes == 0 || left <= r.Bytes) {
			return list.Rollouts[:i]
		}
		left -= e.SpanBytes
	}
	return list.Rollouts
}

// evictCommand evicts the spans of rollouts that are finished since the time at
// which they were found to be.
type evictCommand struct {
	header

	rollouts []EvictableRollout
	evicted  int
	bytes    int64
}

func (c *evictCommand) load(want *LoadParams) {
	for i := range c.rollouts {
		want.Rollouts = append(want.Rollouts, c.rollouts[i].RolloutID)
	}
}

func (c *evictCommand) run(w *work) error {
	c.evicted, c.bytes = 0, 0
	for _, r := range c.rollouts {
		e := w.rollout(r.RolloutID)
		if e == nil || !e.cur.Status.Finished() || e.cur.EndTime.V != r.EndTime {
			continue
		}
		w.changes.EvictedRollouts = append(w.changes.EvictedRollouts, r.RolloutID)
		c.evicted++
		c.bytes += r.SpanBytes
	}
	return nil
}
