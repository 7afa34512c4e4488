package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// Oldest implements driver.Driver.
func (d *Driver) Oldest(_ context.Context, kind driver.Removable, limit int) (driver.OldestList, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	list := oldest{limit: limit}
	switch kind {
	case driver.RemovableSpans:
		list.SpanBytes = d.evictable.total
		for _, r := range d.ordered {
			if r.cur.Status.Finished() && r.bytes > 0 {
				list.add(driver.Oldest{ID: r.cur.RolloutID, Time: r.cur.EndTime.V, SpanBytes: r.bytes})
			}
		}
	case driver.RemovableRollouts:
		for _, r := range d.ordered {
			if r.cur.Status.Finished() {
				list.add(driver.Oldest{ID: r.cur.RolloutID, Time: r.cur.EndTime.V, SpanBytes: r.bytes})
			}
		}
	case driver.RemovableWorkers:
		for _, w := range d.workerList {
			if w.cur.Status != agl.WorkerBusy {
				list.add(driver.Oldest{ID: w.cur.WorkerID, Time: driver.LastContact(w.cur)})
			}
		}
	case driver.RemovableResources:
		used := d.usedResources()
		for _, u := range d.bundleList {
			if u != d.latest && !used[u.cur.ResourcesID] {
				list.add(driver.Oldest{ID: u.cur.ResourcesID, Time: u.cur.UpdateTime})
			}
		}
	case driver.RemovableSequences:
		for id, used := range d.unknownSequences {
			list.add(driver.Oldest{ID: id, Time: used})
		}
	}
	list.cut()
	return list.OldestList, nil
}

// oldest keeps the oldest of the records that are added.
type oldest struct {
	driver.OldestList

	limit int
}

func (o *oldest) add(item driver.Oldest) {
	o.Count++
	if o.Items = append(o.Items, item); len(o.Items) > 2*o.limit {
		o.cut()
	}
}

func (o *oldest) cut() {
	slices.SortStableFunc(o.Items, func(a, b driver.Oldest) int { return cmp.Compare(a.Time, b.Time) })
	o.Items = o.Items[:min(len(o.Items), o.limit)]
}

// usedResources returns the bundles that unfinished rollouts name.
func (d *Driver) usedResources() map[string]bool {
	used := map[string]bool{}
	for _, r := range d.ordered {
		if !r.cur.Status.Finished() && r.cur.ResourcesID.Valid {
			used[r.cur.ResourcesID.V] = true
		}
	}
	return used
}

func (d *Driver) deleteWorkers(ids []string) {
	for _, id := range ids {
		if w := d.workers[id]; w != nil {
			d.workerList = slices.DeleteFunc(d.workerList, func(other *worker) bool { return other == w })
			w.cur = nil
			if w.live == 0 {
				delete(d.workers, id)
			}
		}
	}
}

func (d *Driver) deleteResources(ids []string) {
	for _, id := range ids {
		if u := d.resources[id]; u != nil {
			d.bundleList = slices.DeleteFunc(d.bundleList, func(other *bundle) bool { return other == u })
			delete(d.resources, id)
		}
	}
}

func (d *Driver) deleteSequences(ids []string) {
	for _, id := range ids {
		delete(d.sequences, id)
		delete(d.unknownSequences, id)
	}
}
