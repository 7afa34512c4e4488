package storetest

import (
	"fmt"

	"github.com/agl-go/agl"
)

func restartTests(a *area) {
	a.test("the queue keeps its order", testRestartQueue)
	a.test("a closed queue stays closed", testRestartClosed)
	a.test("timeouts count from real times", testRestartTimeout)
	a.test("silence has grace", testRestartGrace)
	a.test("sequence ids go on", testRestartSequence)
	a.test("idempotency keys replay", testRestartKeys)
	a.test("events go on without a gap", testRestartEvents)
	a.test("resources and workers", testRestartResources)
	a.testWith("evicted stays evicted", OpenParams{SpanBytes: 100_000, SafeSpanBytes: 50_000}, func(h *harness) { h.testStaysEvicted(h.restart) })
}

// restart replaces the store by a new one over the same data, as another process would.
func (h *harness) restart() {
	h.Helper()
	if h.Restart == nil {
		h.Skip("the store cannot be opened again")
	}
	h.Store = h.Restart()
}

func testRestartQueue(h *harness) {
	r := h.enqueue(numbered(6)...)
	h.dequeueOne("", r[0].RolloutID)
	h.dequeueOne("", r[1].RolloutID)
	claim := h.dequeueOne("", r[2].RolloutID)
	h.setStatus(r[1].RolloutID, agl.RolloutRequeuing)
	h.cancel(r[4].RolloutID)
	can := h.Store.Capabilities().ReturnClaims
	if can {
		h.returnClaims(claim)
	}
	h.restart()
	h.enqueue(numbered(1)...)
	if can {
		h.dequeueOne("", r[2].RolloutID)
	}
	equal(h, "order", inputs(h.dequeue(9, "")), "3 5 1 0")
	h.wantEmptyQueue()
	equal(h, "attempts", len(h.attempts(r[1].RolloutID)), 2)
	h.restart()
	h.wantEmptyQueue()
	h.wantStatus(r[4].RolloutID, agl.RolloutCancelled, "")
	equal(h, "creation", inputs(h.rollouts(agl.QueryRolloutsParams{}).Items), "0 1 2 3 4 5 0")
}

func testRestartClosed(h *harness) {
	h.ok(h.Store.CloseQueue(h.ctx))
	h.restart()
	h.enqueueOne()
	equal(h, "closed", must(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 1}))(h).Closed, true)
	h.ok(h.Store.OpenQueue(h.ctx))
	h.restart()
	equal(h, "claims", len(h.dequeue(1, "")), 1)
}

func testRestartTimeout(h *harness) {
	h.needClock()
	r := h.start(limits(30, 0, retry(2, agl.AttemptTimeout)), "w")
	h.Advance(20 * second)
	h.restart()
	h.Advance(9 * second)
	h.wantStatus(r.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	h.Advance(2 * second)
	got := h.wantStatus(r.RolloutID, agl.RolloutRequeuing, agl.AttemptTimeout)
	h.wantOutcome(got.Attempt, agl.OutcomeTimeout)
	equal(h, "worker", h.worker("w").Status, agl.WorkerUnknown)
	h.restart()
	h.dequeueOne("", r.RolloutID)
}

// testRestartGrace checks that after a restart, the runner of an attempt that is about to
// time out has one heartbeat interval (10 s) to send a heartbeat.
func testRestartGrace(h *harness) {
	h.needClock()
	silent := h.start(limits(0, 5, retry(1)), "")
	heard := h.start(limits(0, 5, retry(1)), "w")
	timed := h.start(limits(5, 5, retry(1)), "")
	h.Advance(4 * second)
	h.restart()
	h.Advance(2 * second)
	h.wantStatus(silent.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	h.wantStatus(timed.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
	h.setStatus(silent.RolloutID, agl.RolloutRunning)
	h.Advance(7 * second)
	h.wantStatus(silent.RolloutID, agl.RolloutRunning, agl.AttemptPreparing)
	h.heartbeat("w", "")
	h.Advance(2 * second)
	h.wantStatus(silent.RolloutID, agl.RolloutFailed, agl.AttemptUnresponsive)
	h.Advance(2 * second)
	h.wantStatus(heard.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	h.Advance(2 * second) // 6 s after its heartbeat
	h.wantStatus(heard.RolloutID, agl.RolloutFailed, agl.AttemptUnresponsive)
}

func testRestartSequence(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	last := int64(0)
	next := func() {
		h.Helper()
		first := h.reserve(r.RolloutID, 3)
		equal(h, "goes on", first > last, true)
		last = first + 2
		s := span(r.RolloutID, r.Attempt.AttemptID, fmt.Sprintf("s%d", last), 0)
		issued := must(h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: []agl.Span{s}, IssueSequenceIDs: true}))(h).Stored[0].SequenceID
		equal(h, "goes on", issued > last, true)
		last = issued
	}
	for range 3 {
		next()
		next()
		h.restart()
	}
	h.addSpans(span(r.RolloutID, r.Attempt.AttemptID, "far", last+1000))
	last += 1000
	h.restart()
	next()
	page := h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID})
	equal(h, "spans", page.Total, 8)
	h.addSpans(page.Items...) // a repeat stores nothing
	equal(h, "spans", h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID}).Total, 8)
}

func testRestartKeys(h *harness) {
	enqueue := func() string {
		return rolloutIDs(must(h.Store.EnqueueRollouts(h.ctx, agl.EnqueueRolloutsParams{Rollouts: numbered(2), IdempotencyKey: "k"}))(h))
	}
	dequeue := func() string {
		got := must(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 1, IdempotencyKey: "k"}))(h)
		return ids(got.Rollouts, func(r *agl.AttemptedRollout) string { return r.RolloutID + "/" + r.Attempt.AttemptID })
	}
	resources := func() string {
		return must(h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: bundle("m"), IdempotencyKey: "k"}))(h).ResourcesID
	}
	enqueued, claimed, added := enqueue(), dequeue(), resources()
	h.restart()
	equal(h, "enqueued", enqueue(), enqueued)
	equal(h, "claimed", dequeue(), claimed)
	equal(h, "added", resources(), added)
	h.wantError(errorOf(h.Store.EnqueueRollouts(h.ctx, agl.EnqueueRolloutsParams{Rollouts: numbered(3), IdempotencyKey: "k"})), agl.ErrConflict, "")
	equal(h, "rollouts", h.rollouts(agl.QueryRolloutsParams{}).Total, 2)
	equal(h, "left", len(h.dequeue(9, "")), 1)
}

func testRestartEvents(h *harness) {
	next, stop := h.follow(h.beginning())
	r := h.enqueue(numbered(4)...)
	equal(h, "first", next().RolloutID, r[0].RolloutID)
	seen := next()
	equal(h, "second", seen.RolloutID, r[1].RolloutID)
	stop()
	h.cancel(r[0].RolloutID)
	h.restart()
	h.cancel(r[1].RolloutID)
	next, stop = h.follow(seen.ID)
	defer stop()
	for _, want := range []struct {
		id     string
		status agl.RolloutStatus
	}{
		{r[2].RolloutID, agl.RolloutQueuing},
		{r[3].RolloutID, agl.RolloutQueuing},
		{r[0].RolloutID, agl.RolloutCancelled},
		{r[1].RolloutID, agl.RolloutCancelled},
	} {
		e := next()
		if e.Kind != agl.EventRollout || e.RolloutID != want.id || e.Status != string(want.status) {
			h.Fatalf("got event %+v, want %s of %s", e, want.status, want.id)
		}
	}
}

func testRestartResources(h *harness) {
	for _, id := range []string{"a", "b", "a"} {
		must(h.Store.UpdateResources(h.ctx, agl.UpdateResourcesParams{ResourcesID: id, Resources: bundle(id)}))(h)
	}
	claimed := h.start(config(agl.RolloutConfig{}), "w")
	h.heartbeat("w", `{"n":1.0}`)
	before := h.worker("w")
	h.restart()
	latest := must(h.Store.GetLatestResources(h.ctx))(h)
	equal(h, "latest", latest.ResourcesID, "a")
	equal(h, "version", latest.Version, 2)
	all := must(h.Store.QueryResources(h.ctx, agl.QueryResourcesParams{}))(h)
	equal(h, "creation", ids(all.Items, func(u *agl.ResourcesUpdate) string { return u.ResourcesID }), "a b")
	equal(h, "inherited", h.enqueueOne().ResourcesID, agl.Some("a"))
	after := h.worker("w")
	equal(h, "worker", string(after.AppendJSON(nil)), string(before.AppendJSON(nil)))
	equal(h, "busy with", after.CurrentAttemptID.V, claimed.Attempt.AttemptID)
	h.report(claimed.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	equal(h, "worker", h.worker("w").Status, agl.WorkerIdle)
}
