package storetest

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

func cancelTests(a *area) {
	a.test("cancel, also by an update, ends the live attempt", testCancelLive)
	a.test("cancel before and after", testCancelOther)
	a.test("cancelled is final", testCancelFinal)
	a.test("cancelled and reopened", testCancelReopened)
	a.test("the runner is told", testCancelTold)
	a.test("delete", testDelete)
	a.test("delete with a superseded attempt", testDeleteSuperseded)
}

func testCancelLive(h *harness) {
	byUpdate := func(id string) agl.Rollout { return h.setStatus(id, agl.RolloutCancelled) }
	for _, cancel := range []func(id string) agl.Rollout{h.cancel, byUpdate} {
		r := h.start(config(retry(5, agl.AttemptFailed)), "w")
		equal(h, "status", cancel(r.RolloutID).Status, agl.RolloutCancelled)
		got := h.wantStatus(r.RolloutID, agl.RolloutCancelled, agl.AttemptFailed)
		equal(h, "attempt has an end time", got.Attempt.EndTime.Valid, true)
		h.wantOutcome(got.Attempt, agl.OutcomeCancelled)
		w := h.worker("w")
		equal(h, "worker", w.Status, agl.WorkerIdle)
		equal(h, "its attempt", w.CurrentAttemptID.Valid, false)
		h.wantEmptyQueue()
	}
}

func testCancelOther(h *harness) {
	queued := h.enqueueOne()
	h.cancel(queued.RolloutID)
	h.wantStatus(queued.RolloutID, agl.RolloutCancelled, "")
	h.wantEmptyQueue()
	done := h.start(config(agl.RolloutConfig{}), "")
	h.report(done.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	before := h.get(done.RolloutID)
	equal(h, "a finished one", h.cancel(done.RolloutID).Status, agl.RolloutSucceeded)
	equal(h, "end time", h.get(done.RolloutID).EndTime, before.EndTime)
	h.wantError(errorOf(h.Store.CancelRollout(h.ctx, agl.CancelRolloutParams{RolloutID: "nope"})), agl.ErrNotFound, "Rollout nope not found")
}

func testCancelFinal(h *harness) {
	r := h.start(config(retry(5, agl.AttemptFailed)), "w")
	end := h.cancel(r.RolloutID).EndTime
	check := func(attempt agl.AttemptStatus) {
		h.Helper()
		got := h.wantStatus(r.RolloutID, agl.RolloutCancelled, attempt)
		equal(h, "end time", got.EndTime, end)
		h.wantOutcome(got.Attempt, agl.OutcomeCancelled)
	}
	h.touch(r.Attempt)
	check(agl.AttemptFailed)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptRunning)
	check(agl.AttemptFailed)
	equal(h, "worker", h.worker("w").CurrentAttemptID.Valid, false)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	check(agl.AttemptSucceeded)
	must(h.Store.UpdateAttempt(h.ctx, agl.UpdateAttemptParams{
		RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt, Metadata: jsontext.Value(`{"k":1,"agentlightning.outcome":{"kind":"ok","message":""}}`),
	}))(h)
	check(agl.AttemptSucceeded)
	h.wantEmptyQueue()
}

func testCancelReopened(h *harness) {
	r := h.enqueueOne()
	h.cancel(r.RolloutID)
	h.setStatus(r.RolloutID, agl.RolloutQueuing)
	claimed := h.dequeueOne("", r.RolloutID)
	h.touch(claimed.Attempt)
	h.wantStatus(r.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
}

func testCancelTold(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "w")
	live := h.start(config(agl.RolloutConfig{}), "v")
	got := h.addSpans(span(r.RolloutID, r.Attempt.AttemptID, "a", 1))
	equal(h, "cancelled", len(got.Cancelled), 0)
	equal(h, "its attempt", h.heartbeat("w", "").CurrentAttemptID, agl.Some(r.Attempt.AttemptID))
	h.cancel(r.RolloutID)
	got = h.addSpans(
		span(r.RolloutID, r.Attempt.AttemptID, "b", 2), span(live.RolloutID, live.Attempt.AttemptID, "b", 2),
		span(r.RolloutID, r.Attempt.AttemptID, "a", 1),
	)
	equal(h, "stored", len(got.Stored), 2)
	equal(h, "cancelled", ids(got.Cancelled, func(s *string) string { return *s }), r.Attempt.AttemptID)
	equal(h, "its attempt", h.heartbeat("w", "").CurrentAttemptID.Valid, false)
}

func testDelete(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "w")
	h.touch(r.Attempt)
	remove := func(id string) error { return h.Store.DeleteRollout(h.ctx, agl.DeleteRolloutParams{RolloutID: id}) }
	h.wantError(remove("nope"), agl.ErrNotFound, "Rollout nope not found")
	h.wantError(remove(r.RolloutID), agl.ErrIllegalState, "")
	other := h.start(config(agl.RolloutConfig{}), "")
	h.touch(other.Attempt)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	h.ok(remove(r.RolloutID))
	h.wantError(errorOf(h.Store.GetRollout(h.ctx, agl.GetRolloutParams{RolloutID: r.RolloutID})), agl.ErrNotFound, "")
	equal(h, "attempts", len(h.attempts(r.RolloutID)), 0)
	equal(h, "spans", h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID}).Total, 0)
	_, err := h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: []agl.Span{span(r.RolloutID, r.Attempt.AttemptID, "z", 9)}})
	h.wantError(err, agl.ErrNotFound, "Rollout "+r.RolloutID+" not found")
	equal(h, "rollouts", h.rollouts(agl.QueryRolloutsParams{}).Total, 1)
	equal(h, "spans of another", h.spans(agl.QuerySpansParams{RolloutID: other.RolloutID}).Total, 1)
	h.wantError(remove(r.RolloutID), agl.ErrNotFound, "")
}

// testDeleteSuperseded deletes a rollout while a worker is busy with an earlier attempt of it, which nobody can report afterwards.
func testDeleteSuperseded(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "first")
	other := h.start(config(agl.RolloutConfig{}), "other")
	must(h.Store.StartAttempt(h.ctx, agl.StartAttemptParams{RolloutID: r.RolloutID, WorkerID: agl.Some("second")}))(h)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	equal(h, "worker of the first attempt", h.worker("first").Status, agl.WorkerBusy)
	h.ok(h.Store.DeleteRollout(h.ctx, agl.DeleteRolloutParams{RolloutID: r.RolloutID}))
	w := h.worker("first")
	equal(h, "status", w.Status, agl.WorkerIdle)
	equal(h, "rollout", w.CurrentRolloutID.Valid || w.CurrentAttemptID.Valid, false)
	equal(h, "another worker", h.worker("other").CurrentRolloutID, agl.Some(other.RolloutID))
}
