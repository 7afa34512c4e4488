package drivertest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// bulkTests returns none in short runs: those are for the race detector, and these tests are long
// and use one goroutine.
func bulkTests() map[string]func(*harness) {
	if testing.Short() {
		return nil
	}
	return map[string]func(*harness){
		"5,000 rollouts in one batch":       testManyRollouts,
		"a rollout of 10,000 spans":         testLongRollout,
		"everything of a large load exists": testManyLoaded,
		"pages of spans, one by one":        testSpanPages,
	}
}

func testManyRollouts(d *harness) {
	const n = 5000
	var c driver.Changes
	for i := range n {
		c.Rollouts = append(c.Rollouts, driver.RolloutChange{Rollout: rollout(fmt.Sprintf("r%d", i), agl.RolloutQueuing), New: true})
		c.Events = append(c.Events, agl.Event{Kind: agl.EventRollout, RolloutID: fmt.Sprintf("r%d", i), Status: "queuing"})
	}
	begin := d.events("", 0).Last
	d.apply(c)
	next := 0
	for _, limits := range [][]int{{512}, {1}, {3, 7}, {512, 16}, {n}} {
		b := d.begin()
		var got driver.Loaded
		var claimed []string
		for _, limit := range limits {
			before := len(claimed)
			claimed = append(claimed, must(b.Claim(d.ctx, limit, &got))(d)...)
			equal(d, "claimed", len(claimed)-before, min(limit, n-next-before))
		}
		equal(d, "loaded", len(got.Rollouts), len(claimed))
		c := driver.Changes{Now: d.now}
		for _, id := range claimed {
			if want := fmt.Sprintf("r%d", next); id != want {
				d.Fatalf("claimed %s, want %s", id, want)
			}
			next++
			c.Rollouts = append(c.Rollouts, driver.RolloutChange{Rollout: rollout(id, agl.RolloutPreparing)})
			c.Attempts = append(c.Attempts, driver.AttemptChange{Attempt: attempt(id, 1, agl.AttemptPreparing, "w"), New: true})
		}
		d.ok(b.Apply(d.ctx, &c))
		equal(d, "live attempts", d.liveAttempts("w"), next)
	}
	equal(d, "claimed", next, n)
	seen := 0
	for after := begin; ; {
		list := d.events(after, 1000)
		if len(list.Events) == 0 {
			break
		}
		for _, e := range list.Events {
			if want := fmt.Sprintf("r%d", seen); e.RolloutID != want {
				d.Fatalf("event of %s, want %s", e.RolloutID, want)
			}
			seen++
		}
		after = list.Events[len(list.Events)-1].ID
	}
	equal(d, "events", seen, n)
	page, err := d.QueryRollouts(d.ctx, agl.QueryRolloutsParams{Paging: agl.Paging{Limit: 2, Offset: n - 1}})
	if err != nil || page.Total != n || len(page.Items) != 1 || page.Items[0].RolloutID != fmt.Sprintf("r%d", n-1) || page.Items[0].Attempt == nil {
		d.Errorf("got %+v, error %v, want the last of %d with its attempt", page, err, n)
	}
}

func testLongRollout(d *harness) {
	const n, each = 10_000, 2500
	a := attempt("r", 1, agl.AttemptRunning, "")
	d.apply(driver.Changes{Rollouts: created(rollout("r", agl.RolloutRunning)), Attempts: begun(a)})
	payloads := make([]string, n)
	for from := 0; from < n; from += each {
		var c driver.Changes
		for i := each - 1; i >= 0; i-- {
			s := spanOf(a, fmt.Sprintf("%016x", from+i), int64(from+i+1))
			payloads[from+i] = string(s.Payload)
			c.Spans = append(c.Spans, s)
		}
		d.apply(c)
	}
	for _, p := range []agl.Paging{
		{Limit: 10}, {Limit: 10, Offset: n - 10}, {Limit: 10, Offset: n - 3}, {Limit: 100, Offset: n / 2, SortBy: "sequence_id"},
	} {
		page, err := d.QuerySpans(d.ctx, agl.QuerySpansParams{RolloutID: "r", Paging: p})
		if err != nil || page.Total != n || len(page.Items) != min(p.Limit, n-p.Offset) {
			d.Fatalf("%d of %d spans, error %v at offset %d", len(page.Items), page.Total, err, p.Offset)
		}
		for i, s := range page.Items {
			equal(d, "span", string(s.Payload), payloads[p.Offset+i])
		}
	}
	page := must(d.QuerySpans(d.ctx, agl.QuerySpansParams{
		RolloutID: "r", Paging: agl.Paging{Limit: 2, Offset: n - 1, SortBy: "sequence_id", Order: agl.Descending},
	}))(d)
	if len(page.Items) != 1 || string(page.Items[0].Payload) != payloads[0] {
		d.Errorf("got %d spans, want the first span last", len(page.Items))
	}
	for i, s := range d.allSpans("r", n) {
		if string(s.Payload) != payloads[i] {
			d.Fatalf("span %d is %s, want %s", i, s.Payload, payloads[i])
		}
	}
}

// testSpanPages reads spans page after page while others are added, which may come before what was read. Some have the same
// sequence id.
func testSpanPages(d *harness) {
	attempts := []*agl.Attempt{attempt("r", 1, agl.AttemptFailed, ""), attempt("r", 2, agl.AttemptRunning, "")}
	d.apply(driver.Changes{Rollouts: created(rollout("r", agl.RolloutRunning)), Attempts: begun(attempts...)})
	source := rand.New(rand.NewPCG(5, 6))
	added := 0
	add := func(n int) {
		var c driver.Changes
		for range n {
			c.Spans = append(c.Spans, spanOf(attempts[added%2], fmt.Sprintf("s%d", added), int64(source.IntN(30))))
			added++
		}
		d.apply(c)
	}
	add(90)
	for round := range 2 {
		for _, attemptID := range []string{"", "at-1", "at-2", agl.LatestAttempt} {
			for _, limit := range []int{3, 20} {
				p := agl.QuerySpansParams{RolloutID: "r", AttemptID: attemptID, Paging: agl.Paging{Limit: limit}}
				for total := 1; p.Offset < total; p.Offset += limit {
					all := p
					all.Paging = agl.Paging{Limit: -1}
					want, _ := d.orderedSpans(all)
					var got []string
					got, total = d.orderedSpans(p)
					equal(d, "total", total, len(want))
					equal(d, fmt.Sprintf("spans of attempt %q from %d on, in round %d", attemptID, p.Offset, round), fmt.Sprint(got),
						fmt.Sprint(want[p.Offset:min(p.Offset+limit, total)]))
					if p.Offset%7 == 6 && added < 130 {
						add(2)
					}
				}
			}
		}
	}
	// The next attempt is the latest one, and has as many spans as the one before it.
	p := agl.QuerySpansParams{RolloutID: "r", AttemptID: agl.LatestAttempt, Paging: agl.Paging{Limit: 30}}
	_, total := d.orderedSpans(p)
	next := attempt("r", 3, agl.AttemptRunning, "")
	c := driver.Changes{Attempts: begun(next)}
	for i := range total {
		c.Spans = append(c.Spans, spanOf(next, fmt.Sprintf("n%d", i), int64(i)))
	}
	d.apply(c)
	p.Offset = 30
	got, _ := d.orderedSpans(p)
	equal(d, "the first span of the second page of the new attempt", got[0], c.Spans[30].SpanID)

	// The rollout is deleted and created again, with as many spans.
	p = agl.QuerySpansParams{RolloutID: "r", Paging: agl.Paging{Limit: 30}}
	_, total = d.orderedSpans(p)
	d.apply(driver.Changes{DeletedRollouts: []string{"r"}})
	again := attempt("r", 1, agl.AttemptRunning, "")
	c = driver.Changes{Rollouts: created(rollout("r", agl.RolloutRunning)), Attempts: begun(again)}
	for i := range total {
		c.Spans = append(c.Spans, spanOf(again, fmt.Sprintf("a%d", i), 1000+int64(i)))
	}
	d.apply(c)
	p.Offset = 30
	got, _ = d.orderedSpans(p)
	equal(d, "the first span of the second page of the rollout that was created again", got[0], c.Spans[30].SpanID)
}

// orderedSpans returns the ids of the spans of a query, and the total.
func (d *harness) orderedSpans(p agl.QuerySpansParams) (ids []string, total int) {
	d.Helper()
	page := must(d.QuerySpans(d.ctx, p))(d)
	for i := range page.Items {
		ids = append(ids, page.Items[i].SpanID)
	}
	return ids, page.Total
}

// testManyLoaded loads thousands of records at once, half of which exist.
func testManyLoaded(d *harness) {
	const n = 2000
	var c driver.Changes
	var want driver.LoadParams
	for i := range n {
		id := fmt.Sprintf("r%d", i)
		a := attempt(id, 1, agl.AttemptRunning, "")
		want.Rollouts = append(want.Rollouts, id)
		want.Attempts = append(want.Attempts, driver.AttemptKey{RolloutID: id, AttemptID: a.AttemptID})
		want.Workers = append(want.Workers, "w"+id)
		want.Resources = append(want.Resources, "u"+id)
		want.Sequences = append(want.Sequences, id)
		want.Spans = append(want.Spans, driver.SpanKey{RolloutID: id, AttemptID: a.AttemptID, SpanID: "s"})
		want.Keys = append(want.Keys, "op  "+id)
		if i%2 == 1 {
			continue
		}
		c.Rollouts = append(c.Rollouts, created(rollout(id, agl.RolloutRunning))...)
		c.Attempts = append(c.Attempts, begun(a)...)
		c.Workers = append(c.Workers, &agl.Worker{WorkerID: "w" + id, Status: agl.WorkerIdle})
		c.Resources = append(c.Resources, &agl.ResourcesUpdate{ResourcesID: "u" + id, Version: 1})
		c.Sequences = append(c.Sequences, driver.Sequence{RolloutID: id, Last: 1})
		c.Spans = append(c.Spans, spanOf(a, "s", 1))
		c.Keys = append(c.Keys, driver.IdempotencyRecord{Scope: "op  " + id, Fingerprint: "f", CreateTime: d.now})
	}
	d.apply(c)
	got := d.load(want)
	equal(d, "rollouts", len(distinct(got.Rollouts, func(r driver.LoadedRollout) string { return r.Rollout.RolloutID })), n/2)
	equal(d, "attempts", len(distinct(got.Attempts, func(a *agl.Attempt) string { return a.RolloutID })), n/2)
	equal(d, "workers", len(distinct(got.Workers, func(w driver.LoadedWorker) string { return w.WorkerID })), n/2)
	equal(d, "resources", len(got.Resources), n/2)
	equal(d, "sequences", len(got.Sequences), n/2)
	equal(d, "spans", len(got.Spans), n/2)
	equal(d, "keys", len(got.Keys), n/2)
	d.wantCounts(n/2, n/2, n/2)
}
