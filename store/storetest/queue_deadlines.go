package storetest

import (
	"time"

	"github.com/agl-go/agl"
)

const second = time.Second

func deadlineTests(a *area) {
	a.test("timeout with retry, then for good", testTimeout)
	a.test("a limit must be exceeded; timeout goes before silence", testTimeoutStrict)
	a.test("a limit far below zero", testTimeoutFarPast)
	a.test("unresponsive, revived by a span", testUnresponsive)
	a.test("signs of life move the deadline", testHeartbeatsMove)
	a.test("a changed config moves the deadline", testConfigMoves)
	a.test("only running rollouts are watched", testNotWatched)
	a.test("late success after a timeout", testLateAfterTimeout)
	a.test("worker of an attempt out of time", testDeadlineWorker)
	a.test("no traffic needed", testDeadlineAlone)
}

func limits(timeout, unresponsive float64, c agl.RolloutConfig) agl.EnqueueRollout {
	if timeout > 0 {
		c.TimeoutSeconds = agl.Some(timeout)
	}
	if unresponsive > 0 {
		c.UnresponsiveSeconds = agl.Some(unresponsive)
	}
	return config(c)
}

func (h *harness) wantOutcome(a *agl.Attempt, kind agl.OutcomeKind) {
	h.Helper()
	outcome, _ := a.Outcome()
	equal(h, "outcome", outcome.Kind, kind)
}

func testTimeout(h *harness) {
	h.needClock()
	r := h.enqueue(limits(10, 0, retry(2, agl.AttemptTimeout)))[0]
	h.Advance(60 * second) // the clock of an attempt runs from its own start
	h.dequeueOne("", r.RolloutID)
	h.Advance(9 * second)
	h.wantStatus(r.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	h.Advance(2 * second)
	got := h.wantStatus(r.RolloutID, agl.RolloutRequeuing, agl.AttemptTimeout)
	equal(h, "attempt has an end time", got.Attempt.EndTime.Valid, true)
	h.wantOutcome(got.Attempt, agl.OutcomeTimeout)
	h.dequeueOne("", r.RolloutID)
	h.Advance(11 * second)
	h.wantStatus(r.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
	h.wantEmptyQueue()
}

func testTimeoutStrict(h *harness) {
	h.needClock()
	r := h.start(limits(10, 10, retry(1)), "")
	h.Advance(10 * second)
	h.wantStatus(r.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	h.Advance(100 * time.Millisecond)
	h.wantStatus(r.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
}

// testTimeoutFarPast has deadlines before all times that Unix nanoseconds can express; those of others must still come.
func testTimeoutFarPast(h *harness) {
	h.needClock()
	for _, limit := range []float64{-1.2e10, -1e300} {
		past := h.start(config(agl.RolloutConfig{TimeoutSeconds: agl.Some(limit)}), "")
		other := h.start(limits(10, 0, retry(1)), "")
		h.Advance(11 * second)
		h.wantStatus(past.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
		h.wantStatus(other.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
	}
}

func testUnresponsive(h *harness) {
	h.needClock()
	r := h.start(limits(0, 5, retry(2, agl.AttemptUnresponsive)), "")
	h.Advance(6 * second)
	got := h.wantStatus(r.RolloutID, agl.RolloutRequeuing, agl.AttemptUnresponsive)
	equal(h, "attempt has an end time", got.Attempt.EndTime.Valid, true)
	h.wantOutcome(got.Attempt, agl.OutcomeUnresponsive)
	h.touch(r.Attempt)
	got = h.wantStatus(r.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
	equal(h, "attempt has an end time", got.Attempt.EndTime.Valid, false)
	if outcome, done := got.Attempt.Outcome(); done {
		h.Errorf("a revived attempt has outcome %v", outcome)
	}
	h.wantEmptyQueue()
	h.Advance(6 * second)
	h.wantStatus(r.RolloutID, agl.RolloutRequeuing, agl.AttemptUnresponsive)
}

func testHeartbeatsMove(h *harness) {
	h.needClock()
	r := h.start(limits(0, 5, retry(1)), "w")
	for range 3 {
		h.Advance(4 * second)
		h.touch(r.Attempt)
	}
	for range 3 {
		h.Advance(4 * second)
		must(h.Store.UpdateWorker(h.ctx, agl.UpdateWorkerParams{WorkerID: "w"}))(h)
	}
	h.wantStatus(r.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
	h.Advance(6 * second)
	h.wantStatus(r.RolloutID, agl.RolloutFailed, agl.AttemptUnresponsive)
}

func testConfigMoves(h *harness) {
	h.needClock()
	r := h.start(config(agl.RolloutConfig{}), "")
	h.Advance(20 * second)
	h.wantStatus(r.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	c := agl.RolloutConfig{MaxAttempts: 1, TimeoutSeconds: agl.Some(30.0)}
	must(h.Store.UpdateRollout(h.ctx, agl.UpdateRolloutParams{RolloutID: r.RolloutID, Config: &c}))(h)
	h.Advance(5 * second)
	h.wantStatus(r.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	h.Advance(6 * second)
	h.wantStatus(r.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
}

func testNotWatched(h *harness) {
	h.needClock()
	queued := h.enqueue(limits(1, 1, retry(1)))[0]
	byHand := h.start(limits(1, 1, retry(1)), "")
	h.setStatus(byHand.RolloutID, agl.RolloutQueuing)
	cancelled := h.start(limits(1, 1, retry(1)), "")
	h.cancel(cancelled.RolloutID)
	done := h.start(limits(1, 1, retry(1)), "")
	h.report(done.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	h.Advance(time.Hour)
	h.wantStatus(queued.RolloutID, agl.RolloutQueuing, "")
	h.wantStatus(byHand.RolloutID, agl.RolloutQueuing, agl.AttemptPreparing)
	h.wantStatus(cancelled.RolloutID, agl.RolloutCancelled, agl.AttemptFailed)
	h.wantStatus(done.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded)
}

func testLateAfterTimeout(h *harness) {
	h.needClock()
	r := h.start(limits(5, 0, retry(2, agl.AttemptTimeout)), "")
	h.Advance(6 * second)
	h.wantStatus(r.RolloutID, agl.RolloutRequeuing, agl.AttemptTimeout)
	h.touch(r.Attempt) // a span does not revive what timed out
	h.wantStatus(r.RolloutID, agl.RolloutRequeuing, agl.AttemptTimeout)
	a := h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	h.wantOutcome(&a, agl.OutcomeOK)
	h.wantStatus(r.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded)
	h.wantEmptyQueue()
}

func testDeadlineWorker(h *harness) {
	h.needClock()
	r := h.start(limits(5, 0, retry(1)), "w")
	equal(h, "worker", h.worker("w").Status, agl.WorkerBusy)
	h.Advance(6 * second)
	w := h.worker("w")
	equal(h, "worker", w.Status, agl.WorkerUnknown)
	equal(h, "current attempt", w.CurrentAttemptID.Valid, false)
	equal(h, "current rollout", w.CurrentRolloutID.Valid, false)
	equal(h, "idle time", w.LastIdleTime.Valid, true)
	h.wantStatus(r.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
}

// testDeadlineAlone waits without a call that could make the store check deadlines.
func testDeadlineAlone(h *harness) {
	h.needClock()
	r := h.start(limits(5, 0, retry(1)), "")
	done := h.waitFor(r.RolloutID)
	h.Advance(6 * second)
	if got := <-done; len(got) != 1 || got[0].Status != agl.RolloutFailed {
		h.Errorf("waited for %v, want one failed rollout", got)
	}
}
