package drivertest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

func retentionTests() map[string]func(*driver) {
	return map[string]func(*driver){
		"ping":                         testPing,
		"evicted spans":                testEvicted,
		"evicted and deleted":          testEvictedDeleted,
		"evicted when it is made":      testEvictedNew,
		"evictable, oldest end first":  testEvictable,
		"requeued by the same batch":   testRequeued,
		"front of what is queued":      testFrontQueued,
		"claims across large requests": testClaimRest,
	}
}

func testPing(d *driver) {
	if err := d.Ping(d.ctx); err != nil {
		d.Error(err)
	}
}

// ended is a finished rollout that ended at a time.
func ended(id string, at agl.Timestamp) *agl.Rollout {
	r := rollout(id, agl.RolloutSucceeded)
	r.EndTime = agl.Some(at)
	return r
}

func (d *driver) spanCount(id string) int {
	d.Helper()
	page, err := d.QuerySpans(d.ctx, agl.QuerySpansParams{RolloutID: id, Paging: agl.Paging{Limit: -1}})
	if errors.Is(err, agl.ErrEvicted) {
		equal(d, "message", err.Error(), "Spans for rollout "+id+" have been evicted")
		return -1
	}
	if err != nil {
		d.Fatal(err)
	}
	return page.Total
}

func testEvicted(d *driver) {
	a, b := attempt("a", 1, agl.AttemptSucceeded, ""), attempt("b", 1, agl.AttemptSucceeded, "")
	d.apply(store.Changes{
		Rollouts: created(ended("a", 1), ended("b", 2)), Attempts: begun(a, b),
		Spans:     []store.SpanRecord{spanOf(a, "x", 1), spanOf(a, "y", 2), spanOf(b, "x", 1)},
		Sequences: []store.Sequence{{RolloutID: "a", Last: 2}, {RolloutID: "b", Last: 1}},
	})
	d.apply(store.Changes{EvictedRollouts: []string{"a"}})
	equal(d, "evicted", d.spanCount("a"), -1)
	equal(d, "other", d.spanCount("b"), 1)
	got := d.load(store.LoadParams{
		Rollouts: []string{"a"}, Sequences: []string{"a"},
		Spans: []store.SpanKey{{RolloutID: "a", AttemptID: "at-1", SpanID: "x"}},
	})
	equal(d, "rollouts", len(got.Rollouts), 1)
	equal(d, "sequences", len(got.Sequences), 1)
	equal(d, "spans", len(got.Spans), 0)
	stats, err := d.Statistics(d.ctx)
	if err != nil || stats.TotalSpans != 1 || stats.TotalRollouts != 2 || stats.TotalAttempts != 2 {
		d.Errorf("statistics %+v, error %v, want one span, two rollouts and attempts", stats, err)
	}
	// A late writer does not bring them back, nor does a second eviction harm.
	d.apply(store.Changes{Spans: []store.SpanRecord{spanOf(a, "z", 3)}})
	equal(d, "evicted still", d.spanCount("a"), -1)
	d.apply(store.Changes{EvictedRollouts: []string{"a", "b"}})
	equal(d, "evicted still", d.spanCount("a"), -1)
	equal(d, "other", d.spanCount("b"), -1)
	list, err := d.Evictable(d.ctx, 10)
	if err != nil || len(list.Rollouts) != 0 || list.SpanBytes != 0 {
		d.Errorf("evictable %+v, error %v, want nothing", list, err)
	}
}

func testEvictedDeleted(d *driver) {
	a := attempt("a", 1, agl.AttemptSucceeded, "")
	d.apply(store.Changes{
		Rollouts: created(ended("a", 1)), Attempts: begun(a), Spans: []store.SpanRecord{spanOf(a, "x", 1)},
	})
	d.apply(store.Changes{EvictedRollouts: []string{"a"}})
	d.apply(store.Changes{DeletedRollouts: []string{"a"}})
	equal(d, "unknown again", d.spanCount("a"), 0)
	stats, err := d.Statistics(d.ctx)
	if err != nil || stats.TotalSpans != 0 || stats.TotalRollouts != 0 || stats.TotalAttempts != 0 {
		d.Errorf("statistics %+v, error %v, want nothing", stats, err)
	}
}

// testEvictedNew writes a rollout, its spans and their eviction in one batch.
func testEvictedNew(d *driver) {
	a := attempt("a", 1, agl.AttemptSucceeded, "")
	d.apply(store.Changes{
		Rollouts: created(ended("a", 1)), Attempts: begun(a), Spans: []store.SpanRecord{spanOf(a, "x", 1)}, EvictedRollouts: []string{"a"},
	})
	equal(d, "evicted", d.spanCount("a"), -1)
	stats, err := d.Statistics(d.ctx)
	if err != nil || stats.TotalSpans != 0 || stats.TotalRollouts != 1 {
		d.Errorf("statistics %+v, error %v, want a rollout without spans", stats, err)
	}
}

func testEvictable(d *driver) {
	var c store.Changes
	bytes := map[string]int64{}
	total := int64(0)
	add := func(r *agl.Rollout, status agl.AttemptStatus, spans int) {
		a := attempt(r.RolloutID, 1, status, "")
		c.Rollouts = append(c.Rollouts, created(r)...)
		c.Attempts = append(c.Attempts, begun(a)...)
		for i := range spans {
			s := spanOf(a, fmt.Sprintf("%s-%d", r.RolloutID, i), int64(i))
			c.Spans = append(c.Spans, s)
			bytes[r.RolloutID] += int64(len(s.Payload))
			total += int64(len(s.Payload))
		}
	}
	add(ended("late", 30), agl.AttemptSucceeded, 1)
	add(ended("early", 10), agl.AttemptSucceeded, 3)
	add(ended("empty", 5), agl.AttemptSucceeded, 0)
	add(rollout("running", agl.RolloutRunning), agl.AttemptRunning, 2)
	add(rollout("requeued", agl.RolloutRequeuing), agl.AttemptFailed, 1)
	add(ended("middle", 20), agl.AttemptFailed, 2)
	add(ended("tie", 20), agl.AttemptFailed, 2)
	d.apply(c)
	check := func(limit int, want string) {
		d.Helper()
		list, err := d.Evictable(d.ctx, limit)
		if err != nil {
			d.Fatal(err)
		}
		var got []string
		for _, r := range list.Rollouts {
			got = append(got, r.RolloutID)
			equal(d, "bytes of "+r.RolloutID, r.SpanBytes, bytes[r.RolloutID])
			if r.EndTime < 10 || r.EndTime > 30 {
				d.Errorf("%s ended at %v", r.RolloutID, r.EndTime)
			}
		}
		equal(d, "evictable", strings.Join(got, " "), want)
		equal(d, "bytes", list.SpanBytes, total)
	}
	check(9, "early middle tie late")
	check(2, "early middle")
	// Reopened, it is not to be evicted; ended anew, it is the last in line.
	d.apply(store.Changes{Rollouts: changed(rollout("early", agl.RolloutRequeuing))})
	check(9, "middle tie late")
	d.apply(store.Changes{Rollouts: changed(ended("early", 30))})
	list, err := d.Evictable(d.ctx, 9)
	if err != nil || len(list.Rollouts) != 4 || list.Rollouts[0].RolloutID != "middle" {
		d.Errorf("evictable %+v, error %v, want middle first of four", list, err)
	}
	d.apply(store.Changes{DeletedRollouts: []string{"middle"}, EvictedRollouts: []string{"tie"}})
	total -= bytes["middle"] + bytes["tie"]
	list, err = d.Evictable(d.ctx, 9)
	if err != nil || len(list.Rollouts) != 2 || list.SpanBytes != total {
		d.Errorf("evictable %+v, error %v, want two and %d bytes", list, err, total)
	}
}

// testRequeued is a batch that claims a rollout and gives it another attempt to
// come: to the driver it never left the queue.
func testRequeued(d *driver) {
	d.apply(store.Changes{Rollouts: created(
		rollout("a", agl.RolloutQueuing), rollout("b", agl.RolloutQueuing), rollout("c", agl.RolloutRunning))})
	b := d.begin()
	var got store.Loaded
	claimed, err := b.Claim(d.ctx, 1, &got)
	if err != nil || len(claimed) != 1 || claimed[0] != "a" {
		d.Fatalf("claimed %v, error %v, want a", claimed, err)
	}
	err = b.Apply(d.ctx, &store.Changes{
		Now: d.now, Rollouts: changed(rollout("c", agl.RolloutRequeuing), rollout("a", agl.RolloutRequeuing)),
		Attempts: begun(attempt("a", 1, agl.AttemptFailed, "")),
	})
	if err != nil {
		d.Fatal(err)
	}
	equal(d, "queue", d.claim(9), "a b c")
	d.apply(store.Changes{Rollouts: changed(rollout("a", agl.RolloutPreparing))})
	equal(d, "queue", d.claim(9), "b c")
}

// testFrontQueued gives back what the same batch has claimed.
func testFrontQueued(d *driver) {
	d.apply(store.Changes{Rollouts: created(rollout("a", agl.RolloutQueuing), rollout("b", agl.RolloutQueuing))})
	d.apply(store.Changes{Rollouts: []store.RolloutChange{{Rollout: rollout("a", agl.RolloutQueuing), Front: true}}})
	equal(d, "queue", d.claim(9), "a b")
}

// testClaimRest claims a part in one batch, commits it, and goes on in another.
func testClaimRest(d *driver) {
	var all []*agl.Rollout
	for i := range 40 {
		all = append(all, rollout(fmt.Sprintf("r%02d", i), agl.RolloutQueuing))
	}
	d.apply(store.Changes{Rollouts: created(all...)})
	for from := 0; from < len(all); from += 10 {
		b := d.begin()
		var got store.Loaded
		var claimed []string
		for _, limit := range []int{3, 7} {
			ids, err := b.Claim(d.ctx, limit, &got)
			if err != nil {
				d.Fatal(err)
			}
			claimed = append(claimed, ids...)
		}
		c := store.Changes{Now: d.now}
		for i, id := range claimed {
			equal(d, "claimed", id, all[from+i].RolloutID)
			c.Rollouts = append(c.Rollouts, changed(rollout(id, agl.RolloutPreparing))...)
			c.Attempts = append(c.Attempts, begun(attempt(id, 1, agl.AttemptPreparing, ""))...)
		}
		equal(d, "claimed", len(claimed), 10)
		if err := b.Apply(d.ctx, &c); err != nil {
			d.Fatal(err)
		}
	}
	equal(d, "queue", d.claim(1), "")
}
