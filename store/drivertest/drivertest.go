// Package drivertest is the suite that every [store.Driver] must pass. It tests
// the seam only: what queries find and how rollouts live is tested through the
// engine by package storetest.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/go-json-experiment/json/jsontext"
)

// Open makes an empty driver for one test, to be closed by tb.Cleanup.
type Open func(tb testing.TB) store.Driver

// Run runs the suite in parallel.
func Run(t *testing.T, open Open) {
	t.Helper()
	for _, tests := range []map[string]func(*driver){
		{
			"load what is named":               testLoad,
			"load with what belongs to it":     testClosure,
			"discard changes nothing":          testDiscard,
			"claim in order":                   testClaim,
			"queue follows the status":         testQueue,
			"back to the front":                testFront,
			"returned attempts":                testReturned,
			"live attempts of a worker":        testLiveAttempts,
			"sequences":                        testSequences,
			"spans":                            testSpans,
			"resources":                        testResources,
			"idempotency records":              testKeys,
			"events":                           testEvents,
			"queue state":                      testQueueState,
			"delete":                           testDelete,
			"live":                             testLive,
			"snapshots":                        testSnapshots,
			"statistics":                       testStatistics,
			"one batch for everything at once": testOneBatch,
		},
		retentionTests(), exportTests(), documentTests(), queryTests(), bulkTests(),
	} {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(&driver{T: t, Driver: open(t), open: open, ctx: t.Context(), now: 1_760_000_000})
			})
		}
	}
}

// driver ends the test on an error.
type driver struct {
	*testing.T
	store.Driver

	open Open            // another, empty one
	ctx  context.Context //nolint:containedctx // a test's own, for all of its calls
	now  agl.Timestamp
}

func (d *driver) begin() store.Batch {
	d.Helper()
	b, err := d.Begin(d.ctx)
	if err != nil {
		d.Fatalf("Begin: %v", err)
	}
	return b
}

// apply commits changes in a batch of their own.
func (d *driver) apply(c store.Changes) {
	d.Helper()
	b := d.begin()
	defer b.Discard()
	c.Now = d.now
	if err := b.Apply(d.ctx, &c); err != nil {
		d.Fatalf("Apply: %v", err)
	}
}

func (d *driver) load(want store.LoadParams) *store.Loaded {
	d.Helper()
	b := d.begin()
	defer b.Discard()
	want.Now = d.now
	var got store.Loaded
	if err := b.Load(d.ctx, &want, &got); err != nil {
		d.Fatalf("Load: %v", err)
	}
	return &got
}

// claim returns the ids that a batch claims by calls of these limits.
func (d *driver) claim(limits ...int) string {
	d.Helper()
	b := d.begin()
	defer b.Discard()
	var all []string
	for _, limit := range limits {
		var got store.Loaded
		claimed, err := b.Claim(d.ctx, limit, &got)
		if err != nil {
			d.Fatalf("Claim: %v", err)
		}
		for _, id := range claimed {
			if !slices.ContainsFunc(got.Rollouts, func(r store.LoadedRollout) bool { return r.Rollout.RolloutID == id }) {
				d.Errorf("claimed %s, but did not load it", id)
			}
		}
		all = append(all, strings.Join(claimed, " "))
	}
	return strings.Join(all, "|")
}

func equal[T comparable](d *driver, what string, got, want T) {
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

func created(rollouts ...*agl.Rollout) []store.RolloutChange {
	out := make([]store.RolloutChange, len(rollouts))
	for i, r := range rollouts {
		out[i] = store.RolloutChange{Rollout: r, New: true}
	}
	return out
}

func changed(rollouts ...*agl.Rollout) []store.RolloutChange {
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

func begun(attempts ...*agl.Attempt) []store.AttemptChange {
	out := make([]store.AttemptChange, len(attempts))
	for i, a := range attempts {
		out[i] = store.AttemptChange{Attempt: a, New: true}
	}
	return out
}

func spanOf(a *agl.Attempt, id string, sequence int64) store.SpanRecord {
	s := agl.Span{RolloutID: a.RolloutID, AttemptID: a.AttemptID, SpanID: id, SequenceID: sequence, Name: id}
	return store.SpanRecord{
		SpanKey:    store.SpanKey{RolloutID: a.RolloutID, AttemptID: a.AttemptID, SpanID: id},
		SequenceID: sequence, Name: id, Payload: s.AppendJSON(nil),
	}
}

func testLoad(d *driver) {
	got := d.load(store.LoadParams{
		Rollouts: []string{"nope"}, Attempts: []store.AttemptKey{{RolloutID: "nope", AttemptID: "at"}}, Workers: []string{"nope"},
		Resources: []string{"nope"}, Sequences: []string{"nope"}, Spans: []store.SpanKey{{RolloutID: "nope"}}, Keys: []string{"nope"},
	})
	equal(d, "loaded", len(got.Rollouts)+len(got.Attempts)+len(got.Workers)+len(got.Resources)+len(got.Sequences)+
		len(got.Spans)+len(got.Keys), 0)
	equal(d, "latest resources", got.LatestResources.Valid, false)
	equal(d, "queue closed", got.QueueClosed, false)
	r := rollout("r1", agl.RolloutQueuing)
	d.apply(store.Changes{Rollouts: created(r, rollout("r2", agl.RolloutQueuing))})
	got = d.load(store.LoadParams{Rollouts: []string{"r1", "r1"}})
	if len(got.Rollouts) == 0 {
		d.Fatal("nothing was loaded")
	}
	for _, loaded := range got.Rollouts {
		equal(d, "rollout", string(loaded.Rollout.AppendJSON(nil)), string(r.AppendJSON(nil)))
		equal(d, "latest attempt", loaded.Latest, "")
	}
}

func testClosure(d *driver) {
	old, latest := attempt("r", 1, agl.AttemptFailed, "v"), attempt("r", 2, agl.AttemptRunning, "w")
	w := &agl.Worker{
		WorkerID: "w", Status: agl.WorkerBusy, CurrentRolloutID: agl.Some("r"), CurrentAttemptID: agl.Some("at-2"),
	}
	d.apply(store.Changes{
		Rollouts: created(rollout("r", agl.RolloutRunning)), Attempts: begun(old, latest),
		Workers: []*agl.Worker{w, {WorkerID: "v", Status: agl.WorkerIdle}},
	})
	check := func(name string, want store.LoadParams, attempts, workers string) {
		d.Helper()
		got := d.load(want)
		var gotAttempts, gotWorkers []string
		for _, a := range got.Attempts {
			gotAttempts = append(gotAttempts, a.AttemptID)
		}
		for _, w := range got.Workers {
			gotWorkers = append(gotWorkers, w.WorkerID)
		}
		set := func(ids []string) string {
			slices.Sort(ids)
			return strings.Join(slices.Compact(ids), " ")
		}
		equal(d, name+": attempts", set(gotAttempts), attempts)
		equal(d, name+": workers", set(gotWorkers), workers)
		if len(got.Rollouts) == 0 || got.Rollouts[0].Latest != "at-2" {
			d.Errorf("%s: rollouts %+v, want r with its latest attempt", name, got.Rollouts)
		}
	}
	check("by rollout", store.LoadParams{Rollouts: []string{"r"}}, "at-2", "w")
	check("by worker", store.LoadParams{Workers: []string{"w"}}, "at-2", "w")
	check("by attempt", store.LoadParams{Attempts: []store.AttemptKey{{RolloutID: "r", AttemptID: "at-1"}}}, "at-1 at-2", "v w")
}

func testDiscard(d *driver) {
	d.apply(store.Changes{Rollouts: created(rollout("r", agl.RolloutQueuing))})
	b := d.begin()
	var got store.Loaded
	if err := b.Load(d.ctx, &store.LoadParams{Rollouts: []string{"r"}}, &got); err != nil {
		d.Fatal(err)
	}
	if _, err := b.Claim(d.ctx, 1, &got); err != nil {
		d.Fatal(err)
	}
	b.Discard()
	b.Discard()
	equal(d, "queue", d.claim(1), "r")
}

func testClaim(d *driver) {
	equal(d, "empty", d.claim(1), "")
	var all []*agl.Rollout
	for i := range 5 {
		all = append(all, rollout(fmt.Sprintf("r%d", i), agl.RolloutQueuing))
	}
	d.apply(store.Changes{Rollouts: created(all...)})
	equal(d, "one", d.claim(1), "r0")
	equal(d, "a claim alone takes nothing", d.claim(2), "r0 r1")
	equal(d, "a second call goes on", d.claim(2, 1, 9, 1), "r0 r1|r2|r3 r4|")
	equal(d, "all", d.claim(100), "r0 r1 r2 r3 r4")
}

func testQueue(d *driver) {
	d.apply(store.Changes{Rollouts: created(
		rollout("a", agl.RolloutQueuing), rollout("b", agl.RolloutQueuing), rollout("c", agl.RolloutPreparing))})
	equal(d, "queue", d.claim(9), "a b")
	d.apply(store.Changes{Rollouts: changed(rollout("a", agl.RolloutPreparing))})
	equal(d, "claimed", d.claim(9), "b")
	d.apply(store.Changes{Rollouts: changed(rollout("c", agl.RolloutRequeuing), rollout("a", agl.RolloutRequeuing))})
	equal(d, "queued again, in order", d.claim(9), "b c a")
	d.apply(store.Changes{Rollouts: changed(rollout("b", agl.RolloutRequeuing))})
	equal(d, "queued already", d.claim(9), "b c a")
	d.apply(store.Changes{Rollouts: changed(rollout("c", agl.RolloutCancelled))})
	equal(d, "cancelled", d.claim(9), "b a")
	d.apply(store.Changes{Rollouts: changed(rollout("c", agl.RolloutQueuing))})
	equal(d, "reopened", d.claim(9), "b a c")
	// Many that come and go leave nothing behind.
	for range 300 {
		d.apply(store.Changes{Rollouts: changed(rollout("a", agl.RolloutRunning), rollout("c", agl.RolloutRunning))})
		d.apply(store.Changes{Rollouts: changed(rollout("a", agl.RolloutQueuing), rollout("c", agl.RolloutQueuing))})
	}
	equal(d, "queue", d.claim(9), "b a c")
}

func testFront(d *driver) {
	d.apply(store.Changes{Rollouts: created(
		rollout("a", agl.RolloutPreparing), rollout("b", agl.RolloutPreparing), rollout("c", agl.RolloutQueuing))})
	front := func(ids ...string) {
		var c store.Changes
		for _, id := range ids {
			c.Rollouts = append(c.Rollouts, store.RolloutChange{Rollout: rollout(id, agl.RolloutQueuing), Front: true})
		}
		d.apply(c)
	}
	front("a", "b")
	equal(d, "given back", d.claim(9), "a b c")
	d.apply(store.Changes{Rollouts: changed(rollout("a", agl.RolloutPreparing), rollout("c", agl.RolloutPreparing))})
	front("c")
	equal(d, "given back again", d.claim(9), "c b")
	d.apply(store.Changes{Rollouts: changed(rollout("a", agl.RolloutQueuing))})
	equal(d, "with one at the end", d.claim(1, 1, 1), "c|b|a")
}

func testReturned(d *driver) {
	d.apply(store.Changes{
		Rollouts: created(rollout("r", agl.RolloutPreparing)),
		Attempts: begun(attempt("r", 1, agl.AttemptFailed, ""), attempt("r", 2, agl.AttemptPreparing, "w")),
	})
	d.apply(store.Changes{
		Rollouts:         []store.RolloutChange{{Rollout: rollout("r", agl.RolloutRequeuing), Front: true}},
		ReturnedAttempts: []store.AttemptKey{{RolloutID: "r", AttemptID: "at-2"}},
	})
	got := d.load(store.LoadParams{Rollouts: []string{"r"}, Workers: []string{"w"}})
	equal(d, "latest", got.Rollouts[0].Latest, "at-1")
	for _, w := range got.Workers {
		equal(d, "live attempts", w.LiveAttempts, 0)
	}
	page, err := d.QueryAttempts(d.ctx, agl.QueryAttemptsParams{RolloutID: "r", Paging: agl.Paging{Limit: -1}})
	if err != nil || page.Total != 1 {
		d.Errorf("%d attempts, error %v, want one", page.Total, err)
	}
}

func (d *driver) liveAttempts(worker string) int {
	d.Helper()
	for _, w := range d.load(store.LoadParams{Workers: []string{worker}}).Workers {
		if w.WorkerID == worker {
			return w.LiveAttempts
		}
	}
	return 0
}

func testLiveAttempts(d *driver) {
	d.apply(store.Changes{
		Rollouts: created(rollout("a", agl.RolloutRunning), rollout("b", agl.RolloutRunning)),
		Attempts: begun(attempt("a", 1, agl.AttemptRunning, "w"), attempt("b", 1, agl.AttemptPreparing, "w")),
	})
	equal(d, "before there is a worker", d.liveAttempts("w"), 2)
	d.apply(store.Changes{Workers: []*agl.Worker{{WorkerID: "w", Status: agl.WorkerBusy}}})
	equal(d, "two", d.liveAttempts("w"), 2)
	d.apply(store.Changes{Attempts: []store.AttemptChange{{Attempt: attempt("a", 1, agl.AttemptSucceeded, "w")}}})
	equal(d, "one has ended", d.liveAttempts("w"), 1)
	d.apply(store.Changes{Attempts: begun(attempt("b", 2, agl.AttemptPreparing, "v"))})
	equal(d, "one was superseded", d.liveAttempts("w"), 0)
	equal(d, "by that of another", d.liveAttempts("v"), 1)
	d.apply(store.Changes{Attempts: []store.AttemptChange{{Attempt: attempt("b", 2, agl.AttemptPreparing, "w")}}})
	equal(d, "handed over", d.liveAttempts("w"), 1)
	equal(d, "handed over", d.liveAttempts("v"), 0)
	d.apply(store.Changes{DeletedRollouts: []string{"b"}})
	equal(d, "deleted", d.liveAttempts("w"), 0)
}

func testSequences(d *driver) {
	d.apply(store.Changes{Sequences: []store.Sequence{{RolloutID: "ghost", Last: 4}}})
	d.apply(store.Changes{Sequences: []store.Sequence{{RolloutID: "ghost", Last: 9}, {RolloutID: "other", Last: 1}}})
	got := d.load(store.LoadParams{Sequences: []string{"ghost", "nobody"}}).Sequences
	if len(got) != 1 || got[0] != (store.Sequence{RolloutID: "ghost", Last: 9}) {
		d.Errorf("sequences %v, want 9 of ghost", got)
	}
}

func testSpans(d *driver) {
	a := attempt("r", 1, agl.AttemptRunning, "")
	records := []store.SpanRecord{spanOf(a, "x", 2), spanOf(a, "y", 1)}
	d.apply(store.Changes{Rollouts: created(rollout("r", agl.RolloutRunning)), Attempts: begun(a), Spans: records})
	got := d.load(store.LoadParams{Spans: []store.SpanKey{
		{RolloutID: "r", AttemptID: "at-1", SpanID: "x"}, {RolloutID: "r", AttemptID: "at-1", SpanID: "z"},
		{RolloutID: "r", AttemptID: "at-2", SpanID: "x"},
	}}).Spans
	if len(got) != 1 || got[0].SpanID != "x" {
		d.Errorf("spans %v exist, want x", got)
	}
	page, err := d.QuerySpans(d.ctx, agl.QuerySpansParams{RolloutID: "r", Paging: agl.Paging{Limit: -1}})
	if err != nil || len(page.Items) != 2 {
		d.Fatalf("%d spans, error %v, want two", len(page.Items), err)
	}
	equal(d, "first payload", string(page.Items[0]), string(records[1].Payload))
	equal(d, "second payload", string(page.Items[1]), string(records[0].Payload))
}

func testResources(d *driver) {
	if _, err := d.LatestResources(d.ctx); !errors.Is(err, agl.ErrNotFound) {
		d.Errorf("error %v, want not found", err)
	}
	update := func(id string, version int) *agl.ResourcesUpdate {
		return &agl.ResourcesUpdate{ResourcesID: id, Version: version, CreateTime: 1, UpdateTime: 2, Resources: agl.Resources{
			{Name: "p", Resource: agl.PromptTemplate{Template: id, Engine: agl.PromptJinja}},
		}}
	}
	d.apply(store.Changes{Resources: []*agl.ResourcesUpdate{update("a", 1), update("b", 1)}})
	equal(d, "latest", d.load(store.LoadParams{}).LatestResources, agl.Some("b"))
	d.apply(store.Changes{Resources: []*agl.ResourcesUpdate{update("a", 2)}})
	got := d.load(store.LoadParams{Resources: []string{"a"}})
	equal(d, "latest", got.LatestResources, agl.Some("a"))
	want := update("a", 2)
	equal(d, "loaded", string(got.Resources[0].AppendJSON(nil)), string(want.AppendJSON(nil)))
	latest, err := d.LatestResources(d.ctx)
	if err != nil {
		d.Fatal(err)
	}
	equal(d, "latest", string(latest.AppendJSON(nil)), string(want.AppendJSON(nil)))
}

func testKeys(d *driver) {
	record := store.IdempotencyRecord{
		Scope: "op key", Fingerprint: "f", CreateTime: d.now, Made: []store.AttemptKey{{RolloutID: "r", AttemptID: "a"}}, ResourcesID: "x",
	}
	known := func() int { return len(d.load(store.LoadParams{Keys: []string{"op key"}}).Keys) }
	d.apply(store.Changes{Keys: []store.IdempotencyRecord{record}})
	got := d.load(store.LoadParams{Keys: []string{"op key", "op other"}}).Keys
	if len(got) != 1 || got[0].Fingerprint != "f" || got[0].ResourcesID != "x" || !slices.Equal(got[0].Made, record.Made) ||
		got[0].CreateTime != d.now {
		d.Errorf("records %+v, want %+v", got, record)
	}
	d.apply(store.Changes{ForgottenKeys: []string{"op key"}})
	equal(d, "forgotten", known(), 0)
	d.apply(store.Changes{Keys: []store.IdempotencyRecord{record}})
	d.now += 9 * 60
	equal(d, "after 9 minutes", known(), 1)
	d.now += 25 * 3600
	equal(d, "after a day", known(), 0)
}

func (d *driver) events(after string, limit int) store.EventList {
	d.Helper()
	list, err := d.Events(d.ctx, after, limit)
	if err != nil {
		d.Fatal(err)
	}
	return list
}

func testEvents(d *driver) {
	begin := d.events("", 10)
	if begin.Last == "" || begin.Reset || len(begin.Events) > 0 {
		d.Fatalf("the empty log is %+v, want an id and nothing else", begin)
	}
	equal(d, "nothing yet", len(d.events(begin.Last, 10).Events), 0)
	var c store.Changes
	for i := range 5 {
		c.Events = append(c.Events, agl.Event{Kind: agl.EventRollout, RolloutID: fmt.Sprintf("r%d", i), Status: "queuing"})
	}
	d.apply(c)
	d.apply(store.Changes{Events: []agl.Event{{Kind: agl.EventQueue, Status: "closed"}}})
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

func testQueueState(d *driver) {
	d.apply(store.Changes{QueueClosed: agl.Some(true)})
	equal(d, "closed", d.load(store.LoadParams{}).QueueClosed, true)
	d.apply(store.Changes{Rollouts: created(rollout("r", agl.RolloutQueuing))})
	equal(d, "still closed", d.load(store.LoadParams{}).QueueClosed, true)
	d.apply(store.Changes{QueueClosed: agl.Some(false)})
	equal(d, "open", d.load(store.LoadParams{}).QueueClosed, false)
}

func testDelete(d *driver) {
	a, b := attempt("a", 1, agl.AttemptSucceeded, ""), attempt("b", 1, agl.AttemptSucceeded, "")
	d.apply(store.Changes{
		Rollouts: created(rollout("a", agl.RolloutSucceeded), rollout("b", agl.RolloutSucceeded)), Attempts: begun(a, b),
		Spans:     []store.SpanRecord{spanOf(a, "x", 1), spanOf(b, "x", 1)},
		Sequences: []store.Sequence{{RolloutID: "a", Last: 1}, {RolloutID: "b", Last: 1}},
	})
	// What the batch writes for a rollout that it deletes goes with it.
	d.apply(store.Changes{
		DeletedRollouts: []string{"a"}, Spans: []store.SpanRecord{spanOf(a, "y", 2)},
		Attempts: []store.AttemptChange{{Attempt: attempt("a", 1, agl.AttemptFailed, "")}},
	})
	got := d.load(store.LoadParams{Rollouts: []string{"a", "b"}, Sequences: []string{"a", "b"}})
	equal(d, "rollouts", len(got.Rollouts), 1)
	equal(d, "sequences", len(got.Sequences), 1)
	stats, err := d.Statistics(d.ctx)
	if err != nil || stats.TotalRollouts != 1 || stats.TotalAttempts != 1 || stats.TotalSpans != 1 {
		d.Errorf("statistics %+v, error %v, want one of each", stats, err)
	}
}

func testLive(d *driver) {
	limited := func(id string, status agl.RolloutStatus) *agl.Rollout {
		r := rollout(id, status)
		r.Config.TimeoutSeconds = agl.Some(5.0)
		return r
	}
	silent := rollout("silent", agl.RolloutPreparing)
	silent.Config.UnresponsiveSeconds = agl.Some(5.0)
	d.apply(store.Changes{
		Rollouts: created(limited("running", agl.RolloutRunning), silent, rollout("free", agl.RolloutRunning),
			limited("queued", agl.RolloutQueuing), limited("done", agl.RolloutFailed)),
		Attempts: begun(attempt("running", 1, agl.AttemptFailed, ""), attempt("running", 2, agl.AttemptRunning, ""),
			attempt("silent", 1, agl.AttemptPreparing, ""), attempt("free", 1, agl.AttemptRunning, ""),
			attempt("done", 1, agl.AttemptFailed, "")),
	})
	list, err := d.Live(d.ctx)
	if err != nil {
		d.Fatal(err)
	}
	var ids []string
	for i := range list {
		ids = append(ids, list[i].RolloutID+" "+list[i].Attempt.AttemptID)
	}
	slices.Sort(ids)
	equal(d, "live", strings.Join(ids, ", "), "free at-1, running at-2, silent at-1")
}

func testSnapshots(d *driver) {
	d.apply(store.Changes{Rollouts: created(rollout("r", agl.RolloutQueuing))})
	before := d.load(store.LoadParams{Rollouts: []string{"r"}}).Rollouts[0].Rollout
	found, err := d.Rollouts(d.ctx, []string{"r", "nope", "r"})
	if err != nil || len(found) != 2 {
		d.Fatalf("%d rollouts, error %v, want two", len(found), err)
	}
	d.apply(store.Changes{Rollouts: changed(rollout("r", agl.RolloutCancelled))})
	equal(d, "loaded before", before.Status, agl.RolloutQueuing)
	equal(d, "read before", found[0].Status, agl.RolloutQueuing)
}

func testStatistics(d *driver) {
	a := attempt("a", 1, agl.AttemptRunning, "w")
	d.apply(store.Changes{
		Rollouts: created(rollout("a", agl.RolloutRunning), rollout("b", agl.RolloutQueuing)), Attempts: begun(a),
		Workers: []*agl.Worker{{WorkerID: "w", Status: agl.WorkerBusy}}, Spans: []store.SpanRecord{spanOf(a, "x", 1)},
		Resources: []*agl.ResourcesUpdate{{ResourcesID: "u", Version: 1}},
	})
	d.apply(store.Changes{
		Rollouts: changed(rollout("a", agl.RolloutFailed)), Workers: []*agl.Worker{{WorkerID: "w", Status: agl.WorkerIdle}},
		Attempts:  []store.AttemptChange{{Attempt: attempt("a", 1, agl.AttemptFailed, "w")}},
		Resources: []*agl.ResourcesUpdate{{ResourcesID: "u", Version: 2}},
	})
	got, err := d.Statistics(d.ctx)
	if err != nil {
		d.Fatal(err)
	}
	equal(d, "rollouts", got.TotalRollouts, 2)
	equal(d, "attempts", got.TotalAttempts, 1)
	equal(d, "workers", got.TotalWorkers, 1)
	equal(d, "spans", got.TotalSpans, 1)
	equal(d, "resources", got.TotalResources, 1)
}

// testOneBatch makes, claims and ends a rollout in one commit.
func testOneBatch(d *driver) {
	a := attempt("r", 1, agl.AttemptSucceeded, "w")
	d.apply(store.Changes{
		Rollouts: created(rollout("r", agl.RolloutSucceeded)), Attempts: begun(a),
		Workers: []*agl.Worker{{WorkerID: "w", Status: agl.WorkerIdle}}, Spans: []store.SpanRecord{spanOf(a, "x", 1)},
		Sequences: []store.Sequence{{RolloutID: "r", Last: 1}},
		Events:    []agl.Event{{Kind: agl.EventRollout, RolloutID: "r", Status: "succeeded"}},
	})
	equal(d, "queue", d.claim(9), "")
	found, err := d.Rollouts(d.ctx, []string{"r"})
	if err != nil || len(found) != 1 || found[0].Attempt == nil {
		d.Fatalf("rollouts %v, error %v, want one with an attempt", found, err)
	}
	equal(d, "attempt", found[0].Attempt.Status, agl.AttemptSucceeded)
}
