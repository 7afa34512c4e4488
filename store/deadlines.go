package store

import (
	"container/heap"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
)

// deadlines is a heap of the moments at which attempts run out of time, one
// for each rollout: only the latest attempt is watched.
type deadlines struct {
	mu    sync.Mutex
	items []*deadlineItem
	byID  map[string]*deadlineItem
	edits int64         // counts what was set
	first atomic.Int64  // the earliest in nanoseconds since the epoch; 0 is none
	wake  chan struct{} // capacity 1: the earliest has changed
	rules atomic.Pointer[patience]
}

type deadlineItem struct {
	rolloutID string
	at        time.Time
	index     int
	edit      int64 // the number of the edit that set it last
}

func (d *deadlines) init(p patience) {
	d.byID = map[string]*deadlineItem{}
	d.wake = make(chan struct{}, 1)
	d.rules.Store(&p)
}

func (d *deadlines) patience() patience { return *d.rules.Load() }

// forgive gives grace to all who were not heard of since. Only the leader calls
// it. What is in the heap is looked at again when it is due.
func (d *deadlines) forgive(since agl.Timestamp) {
	p := d.patience()
	p.since = since
	d.rules.Store(&p)
}

// Len implements heap.Interface.
func (d *deadlines) Len() int { return len(d.items) }

// Less implements heap.Interface.
func (d *deadlines) Less(i, j int) bool { return d.items[i].at.Before(d.items[j].at) }

// Swap implements heap.Interface.
func (d *deadlines) Swap(i, j int) {
	d.items[i], d.items[j] = d.items[j], d.items[i]
	d.items[i].index, d.items[j].index = i, j
}

// Push implements heap.Interface.
func (d *deadlines) Push(x any) {
	item := x.(*deadlineItem) //nolint:forcetypeassert // only set pushes
	item.index = len(d.items)
	d.items = append(d.items, item)
}

// Pop implements heap.Interface.
func (d *deadlines) Pop() any {
	last := len(d.items) - 1
	item := d.items[last]
	d.items[last] = nil
	d.items = d.items[:last]
	return item
}

// next returns the earliest deadline.
func (d *deadlines) next() (at time.Time, there bool) {
	ns := d.first.Load()
	return time.Unix(0, ns), ns != 0
}

// set takes the deadline of a rollout's latest attempt, or that it has none.
func (d *deadlines) set(r *agl.Rollout, latest *agl.Attempt) {
	d.setRead(r, latest, math.MaxInt64)
}

// mark is taken before the database is read and given to setRead with what was
// found.
func (d *deadlines) mark() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.edits
}

// setRead is set with what was read from the database; what was set since mark
// is newer and stays.
func (d *deadlines) setRead(r *agl.Rollout, latest *agl.Attempt, mark int64) {
	at, ok := deadline(r, latest, d.patience())
	if !ok {
		d.removeRead(r.RolloutID, mark)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	item := d.byID[r.RolloutID]
	if item != nil && item.edit > mark {
		return
	}
	if item == nil {
		item = &deadlineItem{rolloutID: r.RolloutID, at: at.Time()}
		d.byID[r.RolloutID] = item
		heap.Push(d, item)
	} else {
		item.at = at.Time()
		heap.Fix(d, item.index)
	}
	d.edits++
	item.edit = d.edits
	d.refresh()
}

func (d *deadlines) remove(rolloutID string) { d.removeRead(rolloutID, math.MaxInt64) }

// removeRead is remove for what was read from the database after mark.
func (d *deadlines) removeRead(rolloutID string, mark int64) {
	if d.first.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if item := d.byID[rolloutID]; item != nil && item.edit <= mark {
		delete(d.byID, rolloutID)
		heap.Remove(d, item.index)
		d.refresh()
	}
}

// replace takes everything that was read from the database after mark.
func (d *deadlines) replace(live []agl.AttemptedRollout, mark int64) {
	known := make(map[string]struct{}, len(live))
	for i := range live {
		known[live[i].RolloutID] = struct{}{}
		d.setRead(&live[i].Rollout, live[i].Attempt, mark)
	}
	d.mu.Lock()
	var gone []string
	for id := range d.byID {
		if _, there := known[id]; !there {
			gone = append(gone, id)
		}
	}
	d.mu.Unlock()
	for _, id := range gone {
		d.removeRead(id, mark)
	}
}

// refresh publishes the earliest deadline and wakes the watch when it is
// earlier than the one that it sleeps for.
func (d *deadlines) refresh() {
	var first int64
	if len(d.items) > 0 {
		first = d.items[0].at.UnixNano()
	}
	if was := d.first.Swap(first); first != 0 && (was == 0 || first < was) {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// due returns up to most rollouts whose deadline is over, the earliest first.
func (d *deadlines) due(now time.Time, most int) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	// The items that are due form a subtree of the heap that begins at its root.
	var items []*deadlineItem
	var visit func(i int)
	visit = func(i int) {
		if i < len(d.items) && len(items) < most && now.After(d.items[i].at) {
			items = append(items, d.items[i])
			visit(2*i + 1)
			visit(2*i + 2)
		}
	}
	visit(0)
	slices.SortFunc(items, func(a, b *deadlineItem) int { return a.at.Compare(b.at) })
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = item.rolloutID
	}
	return ids
}

// expireCommand ends the attempts of rollouts that are out of time.
type expireCommand struct {
	header

	store   *Store
	ids     []string
	expired []agl.AttemptedRollout // those that were
}

func (c *expireCommand) load(want *LoadParams) {
	want.Rollouts = append(want.Rollouts, c.ids...)
}

func (c *expireCommand) run(w *work) error {
	c.expired = c.expired[:0]
	for _, id := range c.ids {
		e := w.rollouts[id]
		// What this batch has done to it may yet be undone; if not, its deadline is
		// set behind the commit.
		touched := e != nil && (e.changed || e.latest != nil && e.latest.changed)
		if e == nil || e.cur == nil || e.latest == nil {
			if !touched {
				c.store.deadlines.remove(id)
			}
			continue
		}
		r, a, fired := deadlinePassed(*e.cur, *e.latest.cur, w.patience, w.now)
		switch {
		case fired:
			w.setRollout(e, &r)
			w.setAttempt(e.latest, &a)
			w.syncWorker(&a)
			c.expired = append(c.expired, e.attempted())
		case !touched:
			// Another process has moved it on.
			c.store.deadlines.set(e.cur, e.latest.cur)
		}
	}
	return nil
}

// expire ends what is out of time now.
func (s *Store) expire(ctx context.Context) error {
	for {
		ids := s.deadlines.due(s.now(), maxBatch)
		if len(ids) == 0 {
			return nil
		}
		c := &expireCommand{store: s, ids: ids}
		if err := s.submit(ctx, c); err != nil {
			return err
		}
		for i := range c.expired {
			r := &c.expired[i]
			s.log.WarnContext(ctx, "attempt ran out of time", "rollout_id", r.RolloutID,
				"attempt_id", r.Attempt.AttemptID, "attempt_status", r.Attempt.Status, "rollout_status", r.Status)
		}
		if len(ids) < maxBatch {
			return nil
		}
	}
}
