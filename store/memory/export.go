package memory

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

// Ping implements store.Driver.
func (*Driver) Ping(context.Context) error { return nil }

// Evictable implements store.Driver.
func (d *Driver) Evictable(_ context.Context, limit int) (store.EvictableList, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := store.EvictableList{SpanBytes: d.evictable.total}
	for _, r := range d.ordered {
		if r.bytes > 0 && r.cur.Status.Finished() {
			out.Rollouts = append(out.Rollouts, store.EvictableRollout{
				RolloutID: r.cur.RolloutID, EndTime: r.cur.EndTime.V, SpanBytes: r.bytes,
			})
		}
	}
	slices.SortStableFunc(out.Rollouts, func(a, b store.EvictableRollout) int { return cmp.Compare(a.EndTime, b.EndTime) })
	out.Rollouts = out.Rollouts[:min(len(out.Rollouts), limit)]
	return out, nil
}

// Export implements store.Driver. What is handed out is immutable, so only the
// list of it is made while others wait.
func (d *Driver) Export(context.Context) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		for _, record := range d.records() {
			if !yield(record, nil) {
				return
			}
		}
	}
}

func (d *Driver) records() []store.Record {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []store.Record
	for _, u := range d.shelf {
		out = append(out, store.Record{Resources: u.cur})
	}
	for _, w := range d.staff {
		out = append(out, store.Record{Worker: w.cur})
	}
	places := d.queue.places()
	for _, r := range d.ordered {
		out = append(out, store.Record{Rollout: &store.RolloutRecord{Rollout: r.cur, Place: places[r], Evicted: r.evicted}})
		for _, a := range r.attempts {
			out = append(out, store.Record{Attempt: a.cur})
		}
		spans := slices.Clone(r.spans.items)
		slices.SortFunc(spans, func(a, b *span) int { return cmp.Compare(a.ordinal, b.ordinal) })
		for _, s := range spans {
			out = append(out, store.Record{Span: &s.SpanRecord})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.sequences)) {
		out = append(out, store.Record{Sequence: &store.Sequence{RolloutID: id, Last: d.sequences[id]}})
	}
	told := map[string]bool{}
	for _, key := range d.keys.order {
		current, there := d.keys.byKey[key.Scope]
		if there && current.CreateTime == key.CreateTime && !told[key.Scope] {
			told[key.Scope] = true
			out = append(out, store.Record{Key: &current})
		}
	}
	state := store.State{QueueClosed: d.closed}
	if d.latest != nil {
		state.LatestResources = agl.Some(d.latest.cur.ResourcesID)
	}
	return append(out, store.Record{State: &state})
}

// places numbers the rollouts that wait, the head first.
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
