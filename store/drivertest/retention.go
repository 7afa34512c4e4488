package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

func retentionTests() map[string]func(*harness) {
	return map[string]func(*harness){
		"ping":                                 testPing,
		"evicted spans":                        testEvicted,
		"evicted when it is made, and deleted": testEvictedNew,
		"oldest spans":                         testOldestSpans,
		"oldest rollouts":                      testOldestRollouts,
		"oldest workers":                       testOldestWorkers,
		"oldest resources":                     testOldestResources,
		"oldest unknown sequences":             testOldestSequences,
		"requeued by the same batch":           testRequeued,
	}
}

func testPing(d *harness) {
	d.ok(d.Ping(d.ctx))
}

// ended returns a finished rollout that ended at a time.
func ended(id string, at agl.Timestamp) *agl.Rollout {
	r := rollout(id, agl.RolloutSucceeded)
	r.EndTime = agl.Some(at)
	return r
}

func (d *harness) spanCount(id string) int {
	d.Helper()
	page, err := d.QuerySpans(d.ctx, agl.QuerySpansParams{RolloutID: id, Paging: agl.Paging{Limit: -1}})
	if errors.Is(err, agl.ErrEvicted) {
		equal(d, "message", err.Error(), "Spans for rollout "+id+" have been evicted")
		return -1
	}
	d.ok(err)
	return page.Total
}

func testEvicted(d *harness) {
	a, b := attempt("a", 1, agl.AttemptSucceeded, ""), attempt("b", 1, agl.AttemptSucceeded, "")
	d.apply(driver.Changes{
		Rollouts: created(ended("a", 1), ended("b", 2)), Attempts: begun(a, b),
		Spans:     []driver.SpanRecord{spanOf(a, "x", 1), spanOf(a, "y", 2), spanOf(b, "x", 1)},
		Sequences: []driver.Sequence{{RolloutID: "a", Last: 2}, {RolloutID: "b", Last: 1}},
	})
	d.apply(driver.Changes{EvictedRollouts: []string{"a"}})
	equal(d, "evicted", d.spanCount("a"), -1)
	equal(d, "other", d.spanCount("b"), 1)
	got := d.load(driver.LoadParams{
		Rollouts: []string{"a"}, Sequences: []string{"a"},
		Spans: []driver.SpanKey{{RolloutID: "a", AttemptID: "at-1", SpanID: "x"}},
	})
	equal(d, "rollouts", len(got.Rollouts), 1)
	equal(d, "sequences", len(got.Sequences), 1)
	equal(d, "spans", len(got.Spans), 0)
	d.wantCounts(2, 2, 1)
	// Neither a late span nor a second eviction changes that.
	d.apply(driver.Changes{Spans: []driver.SpanRecord{spanOf(a, "z", 3)}})
	equal(d, "evicted still", d.spanCount("a"), -1)
	d.apply(driver.Changes{EvictedRollouts: []string{"a", "b"}})
	equal(d, "evicted still", d.spanCount("a"), -1)
	equal(d, "other", d.spanCount("b"), -1)
	if list := d.oldest(driver.RemovableSpans, 10); len(list.Items) != 0 || list.SpanBytes != 0 {
		d.Errorf("oldest spans %+v, want none", list)
	}
}

// testEvictedNew inserts a rollout and its spans and evicts them in one batch; then it deletes the rollout.
func testEvictedNew(d *harness) {
	a := attempt("a", 1, agl.AttemptSucceeded, "")
	d.apply(driver.Changes{
		Rollouts: created(ended("a", 1)), Attempts: begun(a), Spans: []driver.SpanRecord{spanOf(a, "x", 1)}, EvictedRollouts: []string{"a"},
	})
	equal(d, "evicted", d.spanCount("a"), -1)
	d.wantCounts(1, 1, 0)
	d.apply(driver.Changes{DeletedRollouts: []string{"a"}})
	equal(d, "unknown again", d.spanCount("a"), 0)
	d.wantCounts(0, 0, 0)
}

func (d *harness) oldest(kind driver.Removable, limit int) driver.OldestList {
	d.Helper()
	return must(d.Oldest(d.ctx, kind, limit))(d)
}

// wantOldest checks what may be removed: the ids with their times, and the count.
func (d *harness) wantOldest(kind driver.Removable, limit int, want string, count int) {
	d.Helper()
	list := d.oldest(kind, limit)
	var got []string
	for _, item := range list.Items {
		got = append(got, fmt.Sprintf("%s@%g", item.ID, float64(item.Time)))
	}
	equal(d, "oldest", strings.Join(got, " "), want)
	equal(d, "count", list.Count, count)
}

func testOldestRollouts(d *harness) {
	a := attempt("b", 1, agl.AttemptSucceeded, "")
	d.apply(driver.Changes{
		Rollouts: created(ended("a", 30), ended("b", 10), rollout("live", agl.RolloutRunning), ended("c", 20), rollout("queued", agl.RolloutQueuing)),
		Attempts: begun(a), Spans: []driver.SpanRecord{spanOf(a, "x", 1)},
	})
	d.wantOldest(driver.RemovableRollouts, 9, "b@10 c@20 a@30", 3)
	d.wantOldest(driver.RemovableRollouts, 2, "b@10 c@20", 3)
	spanBytes := func() (sizes []int64) {
		for _, item := range d.oldest(driver.RemovableRollouts, 9).Items {
			sizes = append(sizes, item.SpanBytes)
		}
		return sizes
	}
	equal(d, "bytes", fmt.Sprint(spanBytes()), fmt.Sprint([]int{len(spanOf(a, "x", 1).Payload), 0, 0}))
	d.apply(driver.Changes{EvictedRollouts: []string{"b"}})
	equal(d, "bytes", fmt.Sprint(spanBytes()), "[0 0 0]")
	d.wantOldest(driver.RemovableRollouts, 9, "b@10 c@20 a@30", 3)
	d.apply(driver.Changes{Rollouts: changed(rollout("b", agl.RolloutRequeuing)), DeletedRollouts: []string{"c"}})
	d.wantOldest(driver.RemovableRollouts, 9, "a@30", 1)
}

func testOldestWorkers(d *harness) {
	worker := func(id string, status agl.WorkerStatus, heartbeat, dequeue agl.Timestamp) *agl.Worker {
		w := &agl.Worker{WorkerID: id, Status: status, LastDequeueTime: agl.Some(dequeue)}
		if heartbeat > 0 {
			w.LastHeartbeatTime = agl.Some(heartbeat)
		}
		return w
	}
	d.apply(driver.Changes{Workers: []*agl.Worker{
		worker("a", agl.WorkerIdle, 0, 30), worker("b", agl.WorkerUnknown, 20, 5), worker("busy", agl.WorkerBusy, 1, 1), worker("c", agl.WorkerIdle, 5, 10),
	}})
	d.wantOldest(driver.RemovableWorkers, 9, "c@10 b@20 a@30", 3)
	d.wantOldest(driver.RemovableWorkers, 1, "c@10", 3)
	d.apply(driver.Changes{DeletedWorkers: []string{"c", "a", "unknown"}})
	d.wantOldest(driver.RemovableWorkers, 9, "b@20", 1)
	equal(d, "loaded", len(d.load(driver.LoadParams{Workers: []string{"a", "b", "c"}}).Workers), 1)
	d.apply(driver.Changes{Workers: []*agl.Worker{worker("d", agl.WorkerIdle, 40, 0), worker("c", agl.WorkerIdle, 50, 0)}})
	d.wantIDs("order of creation", "[b busy d c]")(d.workerIDs(agl.QueryWorkersParams{Paging: agl.Paging{Limit: -1}}))
	equal(d, "workers", must(d.Statistics(d.ctx))(d).TotalWorkers, 4)
}

func testOldestResources(d *harness) {
	bundle := func(id string, at agl.Timestamp) *agl.ResourcesUpdate {
		return &agl.ResourcesUpdate{ResourcesID: id, CreateTime: at, UpdateTime: at, Version: 1}
	}
	using := func(r *agl.Rollout, resources string) *agl.Rollout {
		r.ResourcesID = agl.Some(resources)
		return r
	}
	d.apply(driver.Changes{
		Resources:       []*agl.ResourcesUpdate{bundle("used", 1), bundle("c", 30), bundle("a", 10), bundle("waits", 3), bundle("b", 20), bundle("latest", 2)},
		LatestResources: agl.Some("latest"),
		Rollouts: created(using(rollout("r1", agl.RolloutRunning), "used"), using(rollout("r2", agl.RolloutQueuing), "waits"),
			using(ended("r3", 1), "a"), using(rollout("r4", agl.RolloutRunning), "missing")),
	})
	d.wantOldest(driver.RemovableResources, 9, "a@10 b@20 c@30", 3)
	d.wantOldest(driver.RemovableResources, 2, "a@10 b@20", 3)
	got := d.load(driver.LoadParams{ResourcesInUse: []string{"a", "used", "waits", "latest", "unknown"}})
	slices.Sort(got.InUse)
	equal(d, "in use", strings.Join(got.InUse, " "), "used waits")
	d.apply(driver.Changes{DeletedResources: []string{"a", "unknown"}, Rollouts: changed(using(ended("r1", 2), "used"))})
	d.wantOldest(driver.RemovableResources, 9, "used@1 b@20 c@30", 3)
	if _, err := d.Resources(d.ctx, "a"); !errors.Is(err, agl.ErrNotFound) {
		d.Errorf("error %v, want not found", err)
	}
	d.apply(driver.Changes{Resources: []*agl.ResourcesUpdate{bundle("new", 4)}, LatestResources: agl.Some("new")})
	d.wantIDs("order of creation", "[used c waits b latest new]")(d.resourcesIDs(agl.QueryResourcesParams{Paging: agl.Paging{Limit: -1}}))
}

func testOldestSequences(d *harness) {
	use := func(id string, last int64, at agl.Timestamp) {
		d.now = at
		d.apply(driver.Changes{Sequences: []driver.Sequence{{RolloutID: id, Last: last}}})
	}
	d.apply(driver.Changes{Rollouts: created(rollout("known", agl.RolloutRunning)), Sequences: []driver.Sequence{{RolloutID: "known", Last: 1}}})
	use("c", 1, 10)
	use("a", 1, 20)
	use("b", 5, 30)
	use("known", 2, 30)
	use("c", 2, 40)
	d.wantOldest(driver.RemovableSequences, 9, "a@20 b@30 c@40", 3)
	d.wantOldest(driver.RemovableSequences, 1, "a@20", 3)
	d.apply(driver.Changes{Rollouts: created(rollout("b", agl.RolloutQueuing))})
	d.wantOldest(driver.RemovableSequences, 9, "a@20 c@40", 2)
	d.apply(driver.Changes{DeletedSequences: []string{"a", "unknown"}})
	d.wantOldest(driver.RemovableSequences, 9, "c@40", 1)
	got := d.load(driver.LoadParams{Sequences: []string{"a", "b", "c", "known"}})
	last := map[string]int64{}
	for _, s := range got.Sequences {
		last[s.RolloutID] = s.Last
	}
	equal(d, "sequences", fmt.Sprint(last), "map[b:5 c:2 known:2]")
}

func testOldestSpans(d *harness) {
	var c driver.Changes
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
		list := d.oldest(driver.RemovableSpans, limit)
		var got []string
		for _, r := range list.Items {
			got = append(got, r.ID)
			equal(d, "bytes of "+r.ID, r.SpanBytes, bytes[r.ID])
			if r.Time < 10 || r.Time > 30 {
				d.Errorf("%s ended at %v", r.ID, r.Time)
			}
		}
		equal(d, "oldest", strings.Join(got, " "), want)
		equal(d, "bytes", list.SpanBytes, total)
	}
	check(9, "early middle tie late")
	check(2, "early middle")
	// A reopened rollout is not listed; when it ends again, it is listed last.
	d.apply(driver.Changes{Rollouts: changed(rollout("early", agl.RolloutRequeuing))})
	check(9, "middle tie late")
	d.apply(driver.Changes{Rollouts: changed(ended("early", 30))})
	if list := d.oldest(driver.RemovableSpans, 9); list.Count != 4 || len(list.Items) != 4 || list.Items[0].ID != "middle" {
		d.Errorf("oldest %+v, want middle first of four", list)
	}
	d.apply(driver.Changes{DeletedRollouts: []string{"middle"}, EvictedRollouts: []string{"tie"}})
	total -= bytes["middle"] + bytes["tie"]
	if list := d.oldest(driver.RemovableSpans, 9); list.Count != 2 || list.SpanBytes != total {
		d.Errorf("oldest %+v, want two and %d bytes", list, total)
	}
}

// testRequeued claims a rollout and queues it again in one batch, so that for the driver it
// never leaves the queue.
func testRequeued(d *harness) {
	d.apply(driver.Changes{Rollouts: created(
		rollout("a", agl.RolloutQueuing), rollout("b", agl.RolloutQueuing), rollout("c", agl.RolloutRunning))})
	b := d.begin()
	var got driver.Loaded
	equal(d, "claimed", strings.Join(must(b.Claim(d.ctx, 1, &got))(d), " "), "a")
	d.ok(b.Apply(d.ctx, &driver.Changes{
		Now: d.now, Rollouts: changed(rollout("c", agl.RolloutRequeuing), rollout("a", agl.RolloutRequeuing)),
		Attempts: begun(attempt("a", 1, agl.AttemptFailed, "")),
	}))
	equal(d, "queue", d.claim(9), "a b c")
	d.apply(driver.Changes{Rollouts: changed(rollout("a", agl.RolloutPreparing))})
	equal(d, "queue", d.claim(9), "b c")
}
