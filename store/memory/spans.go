package memory

import (
	"cmp"
	"container/heap"
	"context"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// span is a stored span.
type span struct {
	driver.SpanRecord

	ordinal int64
}

func (s *span) stored() driver.StoredSpan {
	return driver.StoredSpan{SpanKey: s.SpanKey, Base: s.Base, Payload: s.Payload}
}

// spanList holds spans by sequence id, start time, end time and insertion.
type spanList struct {
	items []*span
	ties  bool // two spans share a sequence id
}

func compareTimes(a, b agl.Null[agl.Timestamp]) int {
	return cmp.Compare(driver.SortTime(a), driver.SortTime(b))
}

func compareSpans(a, b *span) int {
	return cmp.Or(
		cmp.Compare(a.SequenceID, b.SequenceID),
		compareTimes(a.StartTime, b.StartTime),
		compareTimes(a.EndTime, b.EndTime),
		cmp.Compare(a.ordinal, b.ordinal),
	)
}

// insert puts a span in its place, usually the end.
func (l *spanList) insert(s *span) {
	n := len(l.items)
	if n == 0 || compareSpans(l.items[n-1], s) < 0 {
		l.ties = l.ties || n > 0 && l.items[n-1].SequenceID == s.SequenceID
		l.items = append(l.items, s)
		return
	}
	at, _ := slices.BinarySearchFunc(l.items, s, compareSpans)
	l.ties = l.ties || l.items[at].SequenceID == s.SequenceID || at > 0 && l.items[at-1].SequenceID == s.SequenceID
	l.items = slices.Insert(l.items, at, s)
}

func (d *Driver) applySpan(record *driver.SpanRecord) {
	r := d.rollouts[record.RolloutID]
	a := r.attempt(record.AttemptID)
	s := &span{SpanRecord: *record, ordinal: d.nextOrdinal()}
	// All spans of an attempt share these strings.
	s.RolloutID, s.AttemptID = r.cur.RolloutID, a.cur.AttemptID
	if n := len(a.spans.items); n > 0 && a.spans.items[n-1].TraceID == s.TraceID {
		s.TraceID = a.spans.items[n-1].TraceID
	}
	r.spans.insert(s)
	a.spans.insert(s)
	if a.ids == nil {
		a.ids = map[string]*span{}
	}
	a.ids[s.SpanID] = s
	d.spans++
	size := int64(len(s.Payload))
	r.bytes += size
	d.evictable.total += size
	if r.cur.Status.Finished() {
		d.evictable.finished += size
		d.evictable.add(r)
	}
}

// SpanChains implements driver.Driver.
func (d *Driver) SpanChains(_ context.Context, attempt driver.AttemptKey, ids []string) ([]driver.StoredSpan, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	r := d.rollouts[attempt.RolloutID]
	if r == nil {
		return nil, nil
	}
	a := r.attempt(attempt.AttemptID)
	if a == nil {
		return nil, nil
	}
	var out []driver.StoredSpan
	found := map[string]struct{}{}
	for _, id := range ids {
		for {
			s := a.ids[id]
			if s == nil {
				break
			}
			if _, again := found[id]; again {
				break
			}
			found[id] = struct{}{}
			out = append(out, s.stored())
			if id = s.Base; id == "" {
				break
			}
		}
	}
	return out, nil
}

// dropSpans removes the spans of a rollout.
func (d *Driver) dropSpans(r *rollout) {
	d.spans -= len(r.spans.items)
	d.evictable.total -= r.bytes
	if r.cur.Status.Finished() {
		d.evictable.finished -= r.bytes
	}
	r.bytes = 0
	r.spans = spanList{}
	for _, a := range r.attempts {
		a.spans = spanList{}
		a.ids = nil
	}
}

// evict removes the spans of whole finished rollouts, the oldest first, when the spans
// exceed the eviction threshold.
func (d *Driver) evict() {
	if d.evictable.total <= d.evictAt {
		return
	}
	for d.evictable.total > d.evictDown && len(d.evictable.items) > 0 {
		r := heap.Pop(&d.evictable).(*rollout) //nolint:forcetypeassert // the heap holds nothing else
		if r.bytes > 0 && r.cur.Status.Finished() {
			d.dropSpans(r)
			r.evicted = true
		}
	}
}

// evictable is a heap of the finished rollouts that hold spans, the oldest
// first. A rollout that was reopened stays until it reaches the top.
type evictable struct {
	items    []*rollout
	total    int64 // bytes of all spans
	finished int64 // bytes of the spans of finished rollouts
}

// moved records that a rollout has finished or was reopened.
func (e *evictable) moved(r *rollout, finished bool) {
	if finished {
		e.finished += r.bytes
		e.add(r)
	} else {
		e.finished -= r.bytes
	}
}

func (e *evictable) add(r *rollout) {
	if r.bytes > 0 && r.heapAt == 0 {
		heap.Push(e, r)
	}
}

// forget removes a deleted rollout, so that nothing references it.
func (e *evictable) forget(r *rollout) {
	if r.heapAt > 0 {
		heap.Remove(e, r.heapAt-1)
	}
}

// Len implements heap.Interface.
func (e *evictable) Len() int { return len(e.items) }

// Less implements heap.Interface.
func (e *evictable) Less(i, j int) bool {
	a, b := e.items[i], e.items[j]
	return cmp.Or(cmp.Compare(a.cur.StartTime, b.cur.StartTime), cmp.Compare(a.ordinal, b.ordinal)) < 0
}

// Swap implements heap.Interface.
func (e *evictable) Swap(i, j int) {
	e.items[i], e.items[j] = e.items[j], e.items[i]
	e.items[i].heapAt, e.items[j].heapAt = i+1, j+1
}

// Push implements heap.Interface.
func (e *evictable) Push(x any) {
	r := x.(*rollout) //nolint:forcetypeassert // only add pushes
	e.items = append(e.items, r)
	r.heapAt = len(e.items)
}

// Pop implements heap.Interface.
func (e *evictable) Pop() any {
	last := len(e.items) - 1
	r := e.items[last]
	e.items[last] = nil
	e.items = e.items[:last]
	r.heapAt = 0
	return r
}
