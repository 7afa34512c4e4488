// Package drivertest is the suite that every [driver.Driver] must pass.
//
//	func TestDriver(t *testing.T) {
//		drivertest.Run(t, func(tb testing.TB) driver.Driver { return openEmpty(tb) })
//	}
//
// It tests the seam only. The results of queries and the lifecycle of rollouts are tested
// through the engine, by package storetest. The package must not know any driver.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// Open opens an empty driver for one test and closes it by tb.Cleanup.
type Open func(tb testing.TB) driver.Driver

// Run runs the suite in parallel.
func Run(t *testing.T, open Open) {
	t.Helper()
	for _, tests := range []map[string]func(*harness){
		{
			"load what is named":               testLoad,
			"load with what belongs to it":     testClosure,
			"discard changes nothing":          testDiscard,
			"claim in order":                   testClaim,
			"queue follows the status":         testQueue,
			"back to the front":                testFront,
			"returned attempts":                testReturned,
			"live attempts of a worker":        testLiveAttempts,
			"spans":                            testSpans,
			"resources":                        testResources,
			"idempotency records":              testKeys,
			"events":                           testEvents,
			"queue state":                      testQueueState,
			"what waits and who works":         testQueueCounts,
			"delete":                           testDelete,
			"live":                             testLive,
			"snapshots":                        testSnapshots,
			"one batch for everything at once": testOneBatch,
		},
		chainTests(), retentionTests(), exportTests(), documentTests(), storedDocumentTests(), queryTests(), bulkTests(),
	} {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(&harness{T: t, Driver: open(t), open: open, ctx: t.Context(), now: 1_760_000_000})
			})
		}
	}
}

// harness calls the driver and ends the test on an error.
type harness struct {
	*testing.T
	driver.Driver

	open Open            // opens another, empty driver
	ctx  context.Context //nolint:containedctx // a test's own, for all of its calls
	now  agl.Timestamp
}

func (d *harness) begin() driver.Tx {
	d.Helper()
	return must(d.Begin(d.ctx))(d)
}

// must takes the results of a call, and returns a function that ends the test if there is an error:
// must(d.Live(d.ctx))(d).
func must[T any](v T, err error) func(d *harness) T {
	return func(d *harness) T {
		d.Helper()
		d.ok(err)
		return v
	}
}

// ok ends the test if there is an error.
func (d *harness) ok(err error) {
	d.Helper()
	if err != nil {
		d.Fatalf("unexpected error: %v", err)
	}
}

// allSpans returns a rollout's spans, which must be n.
func (d *harness) allSpans(rolloutID string, n int) []driver.StoredSpan {
	d.Helper()
	page := must(d.QuerySpans(d.ctx, agl.QuerySpansParams{RolloutID: rolloutID, Paging: agl.Paging{Limit: -1}}))(d)
	if len(page.Items) != n || page.Total != n {
		d.Fatalf("%d spans of %s, total %d, want %d", len(page.Items), rolloutID, page.Total, n)
	}
	return page.Items
}

// stored returns a rollout with its latest attempt, which it must have.
func (d *harness) stored(rolloutID string) agl.AttemptedRollout {
	d.Helper()
	found := must(d.Rollouts(d.ctx, []string{rolloutID}))(d)
	if len(found) != 1 || found[0].Attempt == nil {
		d.Fatalf("found %v, want %s with an attempt", found, rolloutID)
	}
	return found[0]
}

// wantCounts checks the statistics.
func (d *harness) wantCounts(rollouts, attempts, spans int) {
	d.Helper()
	got := must(d.Statistics(d.ctx))(d)
	equal(d, "rollouts", got.TotalRollouts, rollouts)
	equal(d, "attempts", got.TotalAttempts, attempts)
	equal(d, "spans", got.TotalSpans, spans)
}

// distinct returns the ids of items, each once.
func distinct[T any](items []T, id func(T) string) []string {
	var out []string
	for _, item := range items {
		out = append(out, id(item))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// records are those of an export.
func (d *harness) records() iter.Seq[driver.Record] {
	return func(yield func(driver.Record) bool) {
		d.Helper()
		for r, err := range d.Export(d.ctx) {
			d.ok(err)
			if !yield(r) {
				return
			}
		}
	}
}

// apply commits changes in a batch of their own.
func (d *harness) apply(c driver.Changes) {
	d.Helper()
	b := d.begin()
	defer b.Discard()
	c.Now = d.now
	d.ok(b.Apply(d.ctx, &c))
}

func (d *harness) load(want driver.LoadParams) *driver.Loaded {
	d.Helper()
	b := d.begin()
	defer b.Discard()
	want.Now = d.now
	var got driver.Loaded
	d.ok(b.Load(d.ctx, &want, &got))
	return &got
}

// claim returns the ids that a batch claims, with a call for each limit.
func (d *harness) claim(limits ...int) string {
	d.Helper()
	b := d.begin()
	defer b.Discard()
	var all []string
	for _, limit := range limits {
		var got driver.Loaded
		claimed := must(b.Claim(d.ctx, limit, &got))(d)
		for _, id := range claimed {
			if !slices.ContainsFunc(got.Rollouts, func(r driver.LoadedRollout) bool { return r.Rollout.RolloutID == id }) {
				d.Errorf("claimed %s, but did not load it", id)
			}
		}
		all = append(all, strings.Join(claimed, " "))
	}
	return strings.Join(all, "|")
}

func equal[T comparable](d *harness, what string, got, want T) {
	d.Helper()
	if got != want {
		d.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func rollout(id string, status agl.RolloutStatus) *agl.Rollout {
	return &agl.Rollout{
		RolloutID: id, Input: jsontext.Value(`{"id":"` + id + `"}`), StartTime: 1, Status: status,
		Config: agl.RolloutConfig{MaxAttempts: 1}, Metadata: jsontext.Value(`{}`),
	}
}

func created(rollouts ...*agl.Rollout) []driver.RolloutChange {
	out := make([]driver.RolloutChange, len(rollouts))
	for i, r := range rollouts {
		out[i] = driver.RolloutChange{Rollout: r, New: true}
	}
	return out
}

func changed(rollouts ...*agl.Rollout) []driver.RolloutChange {
	out := created(rollouts...)
	for i := range out {
		out[i].New = false
	}
	return out
}

func attempt(rolloutID string, n int, status agl.AttemptStatus, worker string) *agl.Attempt {
	a := &agl.Attempt{
		RolloutID: rolloutID, AttemptID: fmt.Sprintf("at-%d", n), SequenceID: n, StartTime: 2, Status: status,
	}
	if worker != "" {
		a.WorkerID = agl.Some(worker)
	}
	return a
}

func begun(attempts ...*agl.Attempt) []driver.AttemptChange {
	out := make([]driver.AttemptChange, len(attempts))
	for i, a := range attempts {
		out[i] = driver.AttemptChange{Attempt: a, New: true}
	}
	return out
}

func spanOf(a *agl.Attempt, id string, sequence int64) driver.SpanRecord {
	s := agl.Span{RolloutID: a.RolloutID, AttemptID: a.AttemptID, SpanID: id, SequenceID: sequence, Name: id}
	return driver.SpanRecord{
		SpanKey:    driver.SpanKey{RolloutID: a.RolloutID, AttemptID: a.AttemptID, SpanID: id},
		SequenceID: sequence, Name: id, Payload: s.AppendJSON(nil),
	}
}

func testLoad(d *harness) {
	got := d.load(driver.LoadParams{
		Rollouts: []string{"nope"}, Attempts: []driver.AttemptKey{{RolloutID: "nope", AttemptID: "at"}}, Workers: []string{"nope"},
		Resources: []string{"nope"}, Sequences: []string{"nope"}, Spans: []driver.SpanKey{{RolloutID: "nope"}}, Keys: []string{"nope"},
	})
	equal(d, "loaded", len(got.Rollouts)+len(got.Attempts)+len(got.Workers)+len(got.Resources)+len(got.Sequences)+
		len(got.Spans)+len(got.Keys), 0)
	equal(d, "latest resources", got.LatestResources.Valid, false)
	equal(d, "queue closed", got.QueueClosed, false)
	r := rollout("r1", agl.RolloutQueuing)
	d.apply(driver.Changes{Rollouts: created(r, rollout("r2", agl.RolloutQueuing))})
	got = d.load(driver.LoadParams{Rollouts: []string{"r1", "r1"}})
	if len(got.Rollouts) == 0 {
		d.Fatal("nothing was loaded")
	}
	for _, loaded := range got.Rollouts {
		equal(d, "rollout", string(loaded.Rollout.AppendJSON(nil)), string(r.AppendJSON(nil)))
		equal(d, "latest attempt", loaded.Latest, "")
	}
}

func testClosure(d *harness) {
	old, latest := attempt("r", 1, agl.AttemptFailed, "v"), attempt("r", 2, agl.AttemptRunning, "w")
	w := &agl.Worker{
		WorkerID: "w", Status: agl.WorkerBusy, CurrentRolloutID: agl.Some("r"), CurrentAttemptID: agl.Some("at-2"),
	}
	d.apply(driver.Changes{
		Rollouts: created(rollout("r", agl.RolloutRunning)), Attempts: begun(old, latest),
		Workers: []*agl.Worker{w, {WorkerID: "v", Status: agl.WorkerIdle}},
	})
	check := func(name string, want driver.LoadParams, attempts, workers string) {
		d.Helper()
		got := d.load(want)
		gotAttempts := distinct(got.Attempts, func(a *agl.Attempt) string { return a.AttemptID })
		equal(d, name+": attempts", strings.Join(gotAttempts, " "), attempts)
		gotWorkers := distinct(got.Workers, func(w driver.LoadedWorker) string { return w.WorkerID })
		equal(d, name+": workers", strings.Join(gotWorkers, " "), workers)
		if len(got.Rollouts) == 0 || got.Rollouts[0].Latest != "at-2" {
			d.Errorf("%s: rollouts %+v, want r with its latest attempt", name, got.Rollouts)
		}
	}
	check("by rollout", driver.LoadParams{Rollouts: []string{"r"}}, "at-2", "w")
	check("by worker", driver.LoadParams{Workers: []string{"w"}}, "at-2", "w")
	old1 := []driver.AttemptKey{{RolloutID: "r", AttemptID: "at-1"}}
	check("by attempt", driver.LoadParams{Attempts: old1}, "at-1 at-2", "v w")
	check("for spans", driver.LoadParams{SpanAttempts: old1}, "at-1 at-2", "")
	check("for spans and by attempt", driver.LoadParams{SpanAttempts: old1, Attempts: old1}, "at-1 at-2", "v w")
}

func testDiscard(d *harness) {
	d.apply(driver.Changes{Rollouts: created(rollout("r", agl.RolloutQueuing))})
	b := d.begin()
	var got driver.Loaded
	d.ok(b.Load(d.ctx, &driver.LoadParams{Rollouts: []string{"r"}}, &got))
	must(b.Claim(d.ctx, 1, &got))(d)
	b.Discard()
	b.Discard()
	equal(d, "queue", d.claim(1), "r")
}

func testClaim(d *harness) {
	equal(d, "empty", d.claim(1), "")
	var all []*agl.Rollout
	for i := range 5 {
		all = append(all, rollout(fmt.Sprintf("r%d", i), agl.RolloutQueuing))
	}
	d.apply(driver.Changes{Rollouts: created(all...)})
	equal(d, "one", d.claim(1), "r0")
	equal(d, "a claim alone takes nothing", d.claim(2), "r0 r1")
	equal(d, "a second call goes on", d.claim(2, 1, 9, 1), "r0 r1|r2|r3 r4|")
	equal(d, "all", d.claim(100), "r0 r1 r2 r3 r4")
}

func testQueue(d *harness) {
	d.apply(driver.Changes{Rollouts: created(
		rollout("a", agl.RolloutQueuing), rollout("b", agl.RolloutQueuing), rollout("c", agl.RolloutPreparing))})
	equal(d, "queue", d.claim(9), "a b")
	d.apply(driver.Changes{Rollouts: changed(rollout("a", agl.RolloutPreparing))})
	equal(d, "claimed", d.claim(9), "b")
	d.apply(driver.Changes{Rollouts: changed(rollout("c", agl.RolloutRequeuing), rollout("a", agl.RolloutRequeuing))})
	equal(d, "queued again, in order", d.claim(9), "b c a")
	d.apply(driver.Changes{Rollouts: changed(rollout("b", agl.RolloutRequeuing))})
	equal(d, "queued already", d.claim(9), "b c a")
	d.apply(driver.Changes{Rollouts: changed(rollout("c", agl.RolloutCancelled))})
	equal(d, "cancelled", d.claim(9), "b a")
	d.apply(driver.Changes{Rollouts: changed(rollout("c", agl.RolloutQueuing))})
	equal(d, "reopened", d.claim(9), "b a c")
	// Many short-lived sequences leave nothing behind.
	for range 300 {
		d.apply(driver.Changes{Rollouts: changed(rollout("a", agl.RolloutRunning), rollout("c", agl.RolloutRunning))})
		d.apply(driver.Changes{Rollouts: changed(rollout("a", agl.RolloutQueuing), rollout("c", agl.RolloutQueuing))})
	}
	equal(d, "queue", d.claim(9), "b a c")
}

func testFront(d *harness) {
	d.apply(driver.Changes{Rollouts: created(
		rollout("a", agl.RolloutPreparing), rollout("b", agl.RolloutPreparing), rollout("c", agl.RolloutQueuing))})
	front := func(ids ...string) {
		var c driver.Changes
		for _, id := range ids {
			c.Rollouts = append(c.Rollouts, driver.RolloutChange{Rollout: rollout(id, agl.RolloutQueuing), Front: true})
		}
		d.apply(c)
	}
	front("a", "b")
	equal(d, "given back", d.claim(9), "a b c")
	front("a")
	equal(d, "moved to the front while it is the first", d.claim(9), "a b c")
	d.apply(driver.Changes{Rollouts: changed(rollout("a", agl.RolloutPreparing), rollout("c", agl.RolloutPreparing))})
	front("c")
	equal(d, "given back again", d.claim(9), "c b")
	d.apply(driver.Changes{Rollouts: changed(rollout("a", agl.RolloutQueuing))})
	equal(d, "with one at the end", d.claim(1, 1, 1), "c|b|a")
}

func (d *harness) liveAttempts(worker string) int {
	d.Helper()
	for _, w := range d.load(driver.LoadParams{Workers: []string{worker}}).Workers {
		if w.WorkerID == worker {
			return w.LiveAttempts
		}
	}
	return 0
}

func testLiveAttempts(d *harness) {
	d.apply(driver.Changes{
		Rollouts: created(rollout("a", agl.RolloutRunning), rollout("b", agl.RolloutRunning)),
		Attempts: begun(attempt("a", 1, agl.AttemptRunning, "w"), attempt("b", 1, agl.AttemptPreparing, "w")),
	})
	equal(d, "before there is a worker", d.liveAttempts("w"), 2)
	d.apply(driver.Changes{Workers: []*agl.Worker{{WorkerID: "w", Status: agl.WorkerBusy}}})
	equal(d, "two", d.liveAttempts("w"), 2)
	d.apply(driver.Changes{Attempts: []driver.AttemptChange{{Attempt: attempt("a", 1, agl.AttemptSucceeded, "w")}}})
	equal(d, "one has ended", d.liveAttempts("w"), 1)
	d.apply(driver.Changes{Attempts: begun(attempt("b", 2, agl.AttemptPreparing, "v"))})
	equal(d, "one was superseded", d.liveAttempts("w"), 0)
	equal(d, "by that of another", d.liveAttempts("v"), 1)
	d.apply(driver.Changes{Attempts: []driver.AttemptChange{{Attempt: attempt("b", 2, agl.AttemptPreparing, "w")}}})
	equal(d, "handed over", d.liveAttempts("w"), 1)
	equal(d, "handed over", d.liveAttempts("v"), 0)
	d.apply(driver.Changes{DeletedRollouts: []string{"b"}})
	equal(d, "deleted", d.liveAttempts("w"), 0)
}

func testSpans(d *harness) {
	a := attempt("r", 1, agl.AttemptRunning, "")
	records := []driver.SpanRecord{spanOf(a, "x", 2), spanOf(a, "y", 1)}
	d.apply(driver.Changes{Rollouts: created(rollout("r", agl.RolloutRunning)), Attempts: begun(a), Spans: records})
	got := d.load(driver.LoadParams{Spans: []driver.SpanKey{
		{RolloutID: "r", AttemptID: "at-1", SpanID: "x"}, {RolloutID: "r", AttemptID: "at-1", SpanID: "z"},
		{RolloutID: "r", AttemptID: "at-2", SpanID: "x"},
	}}).Spans
	if len(got) != 1 || got[0].SpanID != "x" {
		d.Errorf("spans %v exist, want x", got)
	}
	spans := d.allSpans("r", 2)
	equal(d, "first payload", string(spans[0].Payload), string(records[1].Payload))
	equal(d, "second payload", string(spans[1].Payload), string(records[0].Payload))
}

func testResources(d *harness) {
	if _, err := d.LatestResources(d.ctx); !errors.Is(err, agl.ErrNotFound) {
		d.Errorf("error %v, want not found", err)
	}
	update := func(id string, version int) *agl.ResourcesUpdate {
		return &agl.ResourcesUpdate{ResourcesID: id, Version: version, CreateTime: 1, UpdateTime: 2, Resources: agl.Resources{
			{Name: "p", Resource: agl.PromptTemplate{Template: id, Engine: agl.PromptJinja}},
		}}
	}
	d.apply(driver.Changes{Resources: []*agl.ResourcesUpdate{update("a", 1), update("b", 1)}})
	equal(d, "no latest", d.load(driver.LoadParams{}).LatestResources, agl.Null[string]{})
	d.apply(driver.Changes{Resources: []*agl.ResourcesUpdate{update("b", 2), update("a", 1)}, LatestResources: agl.Some("b")})
	equal(d, "latest", d.load(driver.LoadParams{}).LatestResources, agl.Some("b"))
	d.apply(driver.Changes{Resources: []*agl.ResourcesUpdate{update("a", 2)}})
	equal(d, "the same latest", d.load(driver.LoadParams{}).LatestResources, agl.Some("b"))
	d.apply(driver.Changes{LatestResources: agl.Some("a")})
	got := d.load(driver.LoadParams{Resources: []string{"a"}})
	equal(d, "latest", got.LatestResources, agl.Some("a"))
	want := update("a", 2)
	equal(d, "loaded", string(got.Resources[0].AppendJSON(nil)), string(want.AppendJSON(nil)))
	latest := must(d.LatestResources(d.ctx))(d)
	equal(d, "latest", string(latest.AppendJSON(nil)), string(want.AppendJSON(nil)))
}

func testKeys(d *harness) {
	record := driver.IdempotencyRecord{
		Scope: "op key", Fingerprint: "f", CreateTime: d.now, Made: []driver.AttemptKey{{RolloutID: "r", AttemptID: "a"}}, ResourcesID: "x",
	}
	known := func() int { return len(d.load(driver.LoadParams{Keys: []string{"op key"}}).Keys) }
	d.apply(driver.Changes{Keys: []driver.IdempotencyRecord{record}})
	got := d.load(driver.LoadParams{Keys: []string{"op key", "op other"}}).Keys
	if len(got) != 1 || got[0].Fingerprint != "f" || got[0].ResourcesID != "x" || !slices.Equal(got[0].Made, record.Made) ||
		got[0].CreateTime != d.now {
		d.Errorf("records %+v, want %+v", got, record)
	}
	d.apply(driver.Changes{ForgottenKeys: []string{"op key"}})
	equal(d, "forgotten", known(), 0)
	d.apply(driver.Changes{Keys: []driver.IdempotencyRecord{record}})
	d.now += 9 * 60
	equal(d, "after 9 minutes", known(), 1)
	d.now += 25 * 3600
	equal(d, "after a day", known(), 0)
}

func (d *harness) events(after string, limit int) driver.EventList {
	d.Helper()
	return must(d.Events(d.ctx, after, limit))(d)
}

func testEvents(d *harness) {
	begin := d.events("", 10)
	if begin.Last == "" || begin.Reset || len(begin.Events) > 0 {
		d.Fatalf("the empty log is %+v, want an id and nothing else", begin)
	}
	equal(d, "nothing yet", len(d.events(begin.Last, 10).Events), 0)
	var c driver.Changes
	for i := range 5 {
		c.Events = append(c.Events, agl.Event{Kind: agl.EventRollout, RolloutID: fmt.Sprintf("r%d", i), Status: "queuing"})
	}
	d.apply(c)
	d.apply(driver.Changes{Events: []agl.Event{{Kind: agl.EventQueue, Status: "closed"}}})
	list := d.events(begin.Last, 4)
	equal(d, "events", len(list.Events), 4)
	rest := d.events(list.Events[3].ID, 10)
	equal(d, "rest", len(rest.Events), 2)
	equal(d, "order", rest.Events[0].RolloutID, "r4")
	equal(d, "last", rest.Events[1].Status, "closed")
	equal(d, "newest", rest.Last, rest.Events[1].ID)
	equal(d, "nothing more", len(d.events(rest.Last, 10).Events), 0)
	equal(d, "no reset", d.events(rest.Last, 10).Reset, false)
	unknown := d.events("not an id", 10)
	equal(d, "reset", unknown.Reset, true)
	equal(d, "events with a reset", len(unknown.Events), 0)
	equal(d, "newest", unknown.Last, rest.Last)
}

func testQueueState(d *harness) {
	told := func() bool {
		return must(d.Statistics(d.ctx))(d).QueueClosed
	}
	d.apply(driver.Changes{QueueClosed: agl.Some(true)})
	equal(d, "closed", d.load(driver.LoadParams{}).QueueClosed, true)
	equal(d, "is told", told(), true)
	d.apply(driver.Changes{Rollouts: created(rollout("r", agl.RolloutQueuing))})
	equal(d, "still closed", d.load(driver.LoadParams{}).QueueClosed, true)
	d.apply(driver.Changes{QueueClosed: agl.Some(false)})
	equal(d, "open", d.load(driver.LoadParams{}).QueueClosed, false)
	equal(d, "is told", told(), false)
}

func testDelete(d *harness) {
	a, b := attempt("a", 1, agl.AttemptSucceeded, ""), attempt("b", 1, agl.AttemptSucceeded, "")
	d.apply(driver.Changes{
		Rollouts: created(rollout("a", agl.RolloutSucceeded), rollout("b", agl.RolloutSucceeded)), Attempts: begun(a, b),
		Spans:     []driver.SpanRecord{spanOf(a, "x", 1), spanOf(b, "x", 1)},
		Sequences: []driver.Sequence{{RolloutID: "a", Last: 1}, {RolloutID: "b", Last: 1}},
	})
	// Deleting a rollout also deletes the rows that the same batch writes for it.
	d.apply(driver.Changes{
		DeletedRollouts: []string{"a"}, Spans: []driver.SpanRecord{spanOf(a, "y", 2)},
		Attempts: []driver.AttemptChange{{Attempt: attempt("a", 1, agl.AttemptFailed, "")}},
	})
	got := d.load(driver.LoadParams{Rollouts: []string{"a", "b"}, Sequences: []string{"a", "b"}})
	equal(d, "rollouts", len(got.Rollouts), 1)
	equal(d, "sequences", len(got.Sequences), 1)
	d.wantCounts(1, 1, 1)
}

func testLive(d *harness) {
	limited := func(id string, status agl.RolloutStatus) *agl.Rollout {
		r := rollout(id, status)
		r.Config.TimeoutSeconds = agl.Some(5.0)
		return r
	}
	silent := rollout("silent", agl.RolloutPreparing)
	silent.Config.UnresponsiveSeconds = agl.Some(5.0)
	d.apply(driver.Changes{
		Rollouts: created(limited("running", agl.RolloutRunning), silent, rollout("free", agl.RolloutRunning),
			limited("queued", agl.RolloutQueuing), limited("done", agl.RolloutFailed)),
		Attempts: begun(attempt("running", 1, agl.AttemptFailed, ""), attempt("running", 2, agl.AttemptRunning, ""),
			attempt("silent", 1, agl.AttemptPreparing, ""), attempt("free", 1, agl.AttemptRunning, ""),
			attempt("done", 1, agl.AttemptFailed, "")),
	})
	list := must(d.Live(d.ctx))(d)
	var ids []string
	for i := range list {
		ids = append(ids, list[i].RolloutID+" "+list[i].Attempt.AttemptID)
	}
	slices.Sort(ids)
	equal(d, "live", strings.Join(ids, ", "), "free at-1, running at-2, silent at-1")
}

func testSnapshots(d *harness) {
	d.apply(driver.Changes{Rollouts: created(rollout("r", agl.RolloutQueuing))})
	before := d.load(driver.LoadParams{Rollouts: []string{"r"}}).Rollouts[0].Rollout
	found := must(d.Rollouts(d.ctx, []string{"r", "nope", "r"}))(d)
	equal(d, "found", len(found), 2)
	d.apply(driver.Changes{Rollouts: changed(rollout("r", agl.RolloutCancelled))})
	equal(d, "loaded before", before.Status, agl.RolloutQueuing)
	equal(d, "read before", found[0].Status, agl.RolloutQueuing)
}

// testOneBatch creates, claims and finishes a rollout in one commit.
func testOneBatch(d *harness) {
	a := attempt("r", 1, agl.AttemptSucceeded, "w")
	d.apply(driver.Changes{
		Rollouts: created(rollout("r", agl.RolloutSucceeded)), Attempts: begun(a),
		Workers: []*agl.Worker{{WorkerID: "w", Status: agl.WorkerIdle}}, Spans: []driver.SpanRecord{spanOf(a, "x", 1)},
		Sequences: []driver.Sequence{{RolloutID: "r", Last: 1}},
		Events:    []agl.Event{{Kind: agl.EventRollout, RolloutID: "r", Status: "succeeded"}},
	})
	equal(d, "queue", d.claim(9), "")
	equal(d, "attempt", d.stored("r").Attempt.Status, agl.AttemptSucceeded)
}
