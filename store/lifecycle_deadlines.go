package store

import (
	"container/heap"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
)

// deadlines is a heap of the times at which attempts are to be ended, one for each
// rollout: only the latest attempt has a deadline.
type deadlines struct {
	mu      sync.Mutex
	items   []*deadlineItem
	byID    map[string]*deadlineItem
	edits   int64         // counts the deadlines that were set
	first   atomic.Int64  // the earliest deadline in Unix nanoseconds; 0 if there is none
	wake    chan struct{} // capacity 1; signals an earlier deadline
	current atomic.Pointer[limits]
}

type deadlineItem struct {
	rolloutID string
	at        time.Time
	index     int
	edit      int64 // the number of the edit that set it
}

func (d *deadlines) init(l limits) {
	d.byID = map[string]*deadlineItem{}
	d.wake = make(chan struct{}, 1)
	d.current.Store(&l)
}

func (d *deadlines) limits() limits { return *d.current.Load() }

// outageEnded extends the deadline of every attempt that could not send a heartbeat in
// time for the outage. Deadlines in the heap are checked again when they are due. Only
// the goroutine that runs a batch calls it. start is 0 if it is not known.
func (d *deadlines) outageEnded(start, now agl.Timestamp) {
	l := d.limits()
	l.outages[0], l.outages[1] = l.outages[1], outage{start, now}
	d.current.Store(&l)
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
func (d *deadlines) next() (at time.Time, found bool) {
	ns := d.first.Load()
	return time.Unix(0, ns), ns != 0
}

// set sets the deadline of a rollout, or removes it when there is none.
func (d *deadlines) set(r *agl.Rollout, latest *agl.Attempt) {
	d.setRead(r, latest, math.MaxInt64)
}

// watermark returns the number of the last edit. Take it before reading the database, and pass it to setRead with
// what was read.
func (d *deadlines) watermark() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.edits
}

// A deadline later than lastDeadline, in the year 2262, the last one that Unix nanoseconds can express, is none. One before
// firstDeadline has passed just as well.
const (
	firstDeadline agl.Timestamp = 1
	lastDeadline  agl.Timestamp = math.MaxInt64 / 1_000_000_000
)

// setRead is set for a rollout that was read from the database. A deadline that was set after the watermark is newer
// and stays.
func (d *deadlines) setRead(r *agl.Rollout, latest *agl.Attempt, watermark int64) {
	at, ok := deadline(r, latest, d.limits())
	if !ok || at > lastDeadline {
		d.removeRead(r.RolloutID, watermark)
		return
	}
	at = max(at, firstDeadline)
	d.mu.Lock()
	defer d.mu.Unlock()
	item := d.byID[r.RolloutID]
	if item != nil && item.edit > watermark {
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

// removeRead is remove for a rollout that was read from the database.
func (d *deadlines) removeRead(rolloutID string, watermark int64) {
	if d.first.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if item := d.byID[rolloutID]; item != nil && item.edit <= watermark {
		delete(d.byID, rolloutID)
		heap.Remove(d, item.index)
		d.refresh()
	}
}

// replace sets the deadlines of all live rollouts, which were read from the database
// after the watermark, and removes all others.
func (d *deadlines) replace(live []agl.AttemptedRollout, watermark int64) {
	known := make(map[string]struct{}, len(live))
	for i := range live {
		known[live[i].RolloutID] = struct{}{}
		d.setRead(&live[i].Rollout, live[i].Attempt, watermark)
	}
	d.mu.Lock()
	var gone []string
	for id := range d.byID {
		if _, found := known[id]; !found {
			gone = append(gone, id)
		}
	}
	d.mu.Unlock()
	for _, id := range gone {
		d.removeRead(id, watermark)
	}
}

// refresh publishes the earliest deadline. It wakes the background goroutine when
// that is earlier than the one it sleeps for.
func (d *deadlines) refresh() {
	var first int64
	if len(d.items) > 0 {
		first = d.items[0].at.UnixNano()
	}
	if was := d.first.Swap(first); first != 0 && (was == 0 || first < was) {
		background.Wake(d.wake)
	}
}

// due returns up to limit rollouts whose deadline has passed, in the order of their deadlines.
func (d *deadlines) due(now time.Time, limit int) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	// The items that are due form a subtree of the heap that begins at its root.
	var items []*deadlineItem
	var visit func(i int)
	visit = func(i int) {
		if i < len(d.items) && len(items) < limit && now.After(d.items[i].at) {
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
