package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

func retentionTests() map[string]func(*driver) {
	return map[string]func(*driver){
		"ping":                         testPing,
		"evicted spans":                testEvicted,
		"evicted and deleted":          testEvictedDeleted,
		"evictable, oldest end first":  testEvictable,
		"export in order":              testExport,
		"export is of one moment":      testExportMoment,
		"export stops when asked":      testExportStops,
		"export of an empty database":  testExportEmpty,
		"export follows what is gone":  testExportGone,
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

// export writes every record in a line.
func (d *driver) export() []string {
	d.Helper()
	var out []string
	for r, err := range d.Export(d.ctx) {
		if err != nil {
			d.Fatal(err)
		}
		out = append(out, describe(r))
	}
	return out
}

func describe(r store.Record) string {
	switch {
	case r.Resources != nil:
		return "resources " + r.Resources.ResourcesID
	case r.Worker != nil:
		return "worker " + r.Worker.WorkerID
	case r.Rollout != nil:
		place := ""
		if r.Rollout.Place.Valid {
			place = " queued"
		}
		if r.Rollout.Evicted {
			place += " evicted"
		}
		return "rollout " + r.Rollout.Rollout.RolloutID + place
	case r.Attempt != nil:
		return "attempt " + r.Attempt.RolloutID + "/" + r.Attempt.AttemptID
	case r.Span != nil:
		return fmt.Sprintf("span %s/%s/%s %d", r.Span.RolloutID, r.Span.AttemptID, r.Span.SpanID, r.Span.SequenceID)
	case r.Sequence != nil:
		return fmt.Sprintf("sequence %s %d", r.Sequence.RolloutID, r.Sequence.Last)
	case r.Key != nil:
		return "key " + r.Key.Scope
	case r.State != nil:
		return fmt.Sprintf("state %v %s", r.State.QueueClosed, r.State.LatestResources.V)
	}
	return "nothing"
}

// fillForExport stores some of everything.
func (d *driver) fillForExport() {
	d.Helper()
	a1, a2, b1 := attempt("z", 1, agl.AttemptFailed, "w"), attempt("z", 2, agl.AttemptRunning, "w"), attempt("a", 1, agl.AttemptFailed, "")
	d.apply(store.Changes{
		Resources: []*agl.ResourcesUpdate{{ResourcesID: "y", Version: 1}, {ResourcesID: "x", Version: 1}},
		Workers:   []*agl.Worker{{WorkerID: "w", Status: agl.WorkerBusy}, {WorkerID: "v", Status: agl.WorkerIdle}},
		Rollouts: created(rollout("z", agl.RolloutRunning), rollout("a", agl.RolloutRequeuing), rollout("q2", agl.RolloutQueuing),
			rollout("q1", agl.RolloutPreparing)),
		Attempts: begun(a1, b1, a2),
		Spans: []store.SpanRecord{
			spanOf(a1, "c", 7), spanOf(b1, "s", 1), spanOf(a1, "b", 3), spanOf(a2, "a", 1), spanOf(a1, "a", 9),
		},
		Sequences: []store.Sequence{{RolloutID: "z", Last: 9}, {RolloutID: "ghost", Last: 4}, {RolloutID: "a", Last: 1}},
		Keys: []store.IdempotencyRecord{{
			Scope: "enqueue  k", Fingerprint: "f", CreateTime: d.now, Made: []store.AttemptKey{{RolloutID: "a"}},
		}},
		QueueClosed: agl.Some(true),
		Events:      []agl.Event{{Kind: agl.EventQueue, Status: "closed"}},
	})
	d.apply(store.Changes{
		Rollouts:  append([]store.RolloutChange{{Rollout: rollout("q1", agl.RolloutQueuing), Front: true}}, created(ended("gone", 3))...),
		Resources: []*agl.ResourcesUpdate{{ResourcesID: "y", Version: 2}},
	})
	d.apply(store.Changes{EvictedRollouts: []string{"gone"}})
}

func testExport(d *driver) {
	d.fillForExport()
	got := d.export()
	want := []string{
		"resources y", "resources x", "worker w", "worker v",
		"rollout z", "attempt z/at-1", "attempt z/at-2",
		"span z/at-1/c 7", "span z/at-1/b 3", "span z/at-2/a 1", "span z/at-1/a 9",
		"rollout a queued", "attempt a/at-1", "span a/at-1/s 1",
		"rollout q2 queued", "rollout q1 queued", "rollout gone evicted",
		"sequence a 1", "sequence ghost 4", "sequence z 9",
		"key enqueue  k", "state true y",
	}
	// Sequences are in no order of their own.
	from := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "sequence") })
	if from < 0 || from+3 > len(got) {
		d.Fatalf("exported %q, want three sequences", got)
	}
	slices.Sort(got[from : from+3])
	if !slices.Equal(got, want) {
		d.Errorf("exported\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	places := map[int64]string{}
	var order []int64
	for r, err := range d.Export(d.ctx) {
		if err != nil {
			d.Fatal(err)
		}
		if r.Rollout != nil && r.Rollout.Place.Valid {
			places[r.Rollout.Place.V] = r.Rollout.Rollout.RolloutID
			order = append(order, r.Rollout.Place.V)
		}
	}
	slices.Sort(order)
	var queue []string
	for _, place := range order {
		queue = append(queue, places[place])
	}
	equal(d, "queue by place", strings.Join(queue, " "), "q1 a q2")
	equal(d, "queue", d.claim(9), "q1 a q2")
}

// testExportMoment changes things while they are read.
func testExportMoment(d *driver) {
	d.fillForExport()
	want := d.export()
	var got []string
	for r, err := range d.Export(d.ctx) {
		if err != nil {
			d.Fatal(err)
		}
		if len(got) == 0 {
			// A database that lets no writer in while it is read would not come back.
			d.apply(store.Changes{
				Rollouts: append(created(rollout("new", agl.RolloutQueuing)), changed(rollout("q2", agl.RolloutPreparing))...),
				Workers:  []*agl.Worker{{WorkerID: "u", Status: agl.WorkerIdle}}, DeletedRollouts: []string{"gone"},
				Sequences: []store.Sequence{{RolloutID: "new", Last: 1}}, QueueClosed: agl.Some(false),
			})
		}
		got = append(got, describe(r))
	}
	if !slices.Equal(got, want) {
		d.Errorf("exported\n%s\nwant what there was when it began\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if after := d.export(); slices.Equal(after, want) {
		d.Error("a later export does not have the changes")
	}
}

func testExportStops(d *driver) {
	d.fillForExport()
	for range 3 {
		n := 0
		for _, err := range d.Export(d.ctx) {
			if err != nil {
				d.Fatal(err)
			}
			if n++; n == 7 {
				break
			}
		}
	}
	// Nothing is held that a writer would wait for.
	d.apply(store.Changes{Workers: []*agl.Worker{{WorkerID: "u", Status: agl.WorkerIdle}}})
}

func testExportEmpty(d *driver) {
	if got := d.export(); !slices.Equal(got, []string{"state false "}) {
		d.Errorf("exported %q, want the state alone", got)
	}
}

func testExportGone(d *driver) {
	d.fillForExport()
	d.apply(store.Changes{
		DeletedRollouts: []string{"z", "q2"}, ForgottenKeys: []string{"enqueue  k"},
		Rollouts: changed(rollout("q1", agl.RolloutPreparing)),
	})
	got := d.export()
	slices.Sort(got)
	want := []string{
		"attempt a/at-1", "resources x", "resources y", "rollout a queued", "rollout gone evicted", "rollout q1",
		"sequence a 1", "sequence ghost 4", "span a/at-1/s 1", "state true y", "worker v", "worker w",
	}
	if !slices.Equal(got, want) {
		d.Errorf("exported\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
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
