package memory

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// Ping implements driver.Driver.
func (*Driver) Ping(context.Context) error { return nil }

// Export implements driver.Driver. The records are immutable, so only their list is made
// under the lock.
func (d *Driver) Export(context.Context) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for _, record := range d.records() {
			if !yield(record, nil) {
				return
			}
		}
	}
}

func (d *Driver) records() []driver.Record {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []driver.Record
	for _, u := range d.bundleList {
		out = append(out, driver.Record{Resources: u.cur})
	}
	for _, w := range d.workerList {
		out = append(out, driver.Record{Worker: w.cur})
	}
	places := d.queue.places()
	for _, r := range d.ordered {
		out = append(out, driver.Record{Rollout: &driver.RolloutRecord{Rollout: r.cur, Place: places[r], Evicted: r.evicted}})
		for _, a := range r.attempts {
			out = append(out, driver.Record{Attempt: a.cur})
		}
		spans := slices.Clone(r.spans.items)
		slices.SortFunc(spans, func(a, b *span) int { return cmp.Compare(a.ordinal, b.ordinal) })
		for _, s := range spans {
			out = append(out, driver.Record{Span: &s.SpanRecord})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.sequences)) {
		out = append(out, driver.Record{Sequence: &driver.Sequence{RolloutID: id, Last: d.sequences[id]}})
	}
	for _, doc := range d.documents.sorted() {
		out = append(out, driver.Record{Document: doc})
	}
	seen := map[string]bool{}
	for _, key := range d.keys.order {
		current, there := d.keys.byKey[key.Scope]
		if there && current.CreateTime == key.CreateTime && !seen[key.Scope] {
			seen[key.Scope] = true
			out = append(out, driver.Record{Key: &current})
		}
	}
	state := driver.State{QueueClosed: d.closed}
	if d.latest != nil {
		state.LatestResources = agl.Some(d.latest.cur.ResourcesID)
	}
	return append(out, driver.Record{State: &state})
}

// places numbers the queued rollouts, the head first.
func (q *queue) places() map[*rollout]agl.Null[int64] {
	out := map[*rollout]agl.Null[int64]{}
	n := int64(0)
	for i := 0; ; i++ {
		p := q.at(i)
		if p == nil {
			return out
		}
		if p.valid() {
			n++
			out[p.entry] = agl.Some(n)
		}
	}
}
