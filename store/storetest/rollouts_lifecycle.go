package storetest

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

func lifecycleTests(a *area) {
	a.test("a rollout from queue to success", testSuccess)
	a.test("start makes rollout and attempt at one moment", testStart)
	a.test("start makes no rollout of the v1.0 API", testStartGateway)
	a.test("retry on failure until max attempts", testRetry)
	a.test("span makes a preparing attempt run", testSpanRuns)
	a.test("span on a queued rollout", testSpanQueued)
	a.test("span after success changes no status", testSpanAfterSuccess)
	a.test("old attempt's spans do not move the rollout", testOldAttempt)
	a.test("late success of a requeued rollout", testLateSuccess)
	a.test("late success of a failed rollout", testFailedToSucceeded)
	a.test("late failure reopens nothing", testSucceededToFailed)
	a.test("live status on a finished rollout moves the attempt only", testLiveOnFinished)
	a.test("start attempt reopens a finished rollout", testReopenByAttempt)
	a.test("derivation table", testDerivation)
}

func testSuccess(h *harness) {
	r := h.enqueue(agl.EnqueueRollout{Input: jsontext.Value(`{"a": 1.0}`), Mode: agl.ModeTrain})[0]
	equal(h, "status", r.Status, agl.RolloutQueuing)
	equal(h, "input", string(r.Input), `{"a": 1.0}`)
	equal(h, "metadata", string(r.Metadata), `{}`)
	equal(h, "max attempts", r.Config.MaxAttempts, 1)
	equal(h, "mode", r.Mode, agl.ModeTrain)
	if got := h.wantStatus(r.RolloutID, agl.RolloutQueuing, ""); got.Attempt != nil {
		h.Errorf("a queued rollout has attempt %v", got.Attempt)
	}
	claimed := h.dequeueOne("w", r.RolloutID)
	equal(h, "number of the attempt", claimed.Attempt.SequenceID, 1)
	equal(h, "worker of the attempt", claimed.Attempt.WorkerID, agl.Some("w"))
	h.wantStatus(r.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	h.report(r.RolloutID, claimed.Attempt.AttemptID, agl.AttemptRunning)
	h.wantStatus(r.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
	done := h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	equal(h, "attempt has an end time", done.EndTime.Valid, true)
	h.wantStatus(r.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded)
	h.wantEmptyQueue()
}

// testStartGateway passes names with which the gateway marks its rollouts, whose jobs controllers run.
func testStartGateway(h *harness) {
	for _, metadata := range []string{`{"agl.gateway":{}}`, `{"a":1,"agl.gatew\u0061y.number":1}`} {
		err := errorOf(h.Store.StartRollout(h.ctx, agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Metadata: jsontext.Value(metadata)}}))
		if !errors.Is(err, agl.ErrInvalid) {
			h.Errorf("%s: got %v, want ErrInvalid", metadata, err)
		}
	}
}

func testStart(h *harness) {
	got := h.start(config(agl.RolloutConfig{}), "w")
	equal(h, "rollout", got.Status, agl.RolloutPreparing)
	equal(h, "attempt", got.Attempt.Status, agl.AttemptPreparing)
	equal(h, "start times", got.Attempt.StartTime, got.StartTime)
	equal(h, "attempt's rollout", got.Attempt.RolloutID, got.RolloutID)
	if len(got.RolloutID) != len("ro-")+12 || len(got.Attempt.AttemptID) != len("at-")+8 {
		h.Errorf("ids %s and %s are not ro- and 12, at- and 8 digits", got.RolloutID, got.Attempt.AttemptID)
	}
	h.wantEmptyQueue()
}

func testRetry(h *harness) {
	r := h.enqueue(config(retry(2, agl.AttemptFailed)))[0]
	first := h.dequeueOne("", r.RolloutID)
	h.report(r.RolloutID, first.Attempt.AttemptID, agl.AttemptFailed)
	h.wantStatus(r.RolloutID, agl.RolloutRequeuing, agl.AttemptFailed)
	second := h.dequeueOne("", r.RolloutID)
	equal(h, "number of the attempt", second.Attempt.SequenceID, 2)
	h.report(r.RolloutID, second.Attempt.AttemptID, agl.AttemptFailed)
	h.wantStatus(r.RolloutID, agl.RolloutFailed, agl.AttemptFailed)
	h.wantEmptyQueue()
}

func testSpanRuns(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	equal(h, "heartbeat before", r.Attempt.LastHeartbeatTime.Valid, false)
	h.touch(r.Attempt)
	got := h.wantStatus(r.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
	equal(h, "heartbeat after", got.Attempt.LastHeartbeatTime.Valid, true)
}

func testSpanQueued(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	h.report(r.RolloutID, r.Attempt.AttemptID, agl.AttemptFailed)
	h.setStatus(r.RolloutID, agl.RolloutQueuing)
	// The latest attempt is over: its spans are stored and change no status.
	h.touch(r.Attempt)
	h.wantStatus(r.RolloutID, agl.RolloutQueuing, agl.AttemptFailed)
	h.dequeueOne("", r.RolloutID)

	// A live attempt takes its rollout out of the queue.
	other := h.start(config(agl.RolloutConfig{}), "")
	h.setStatus(other.RolloutID, agl.RolloutQueuing)
	h.touch(other.Attempt)
	h.wantStatus(other.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
	h.wantEmptyQueue()
}

func testSpanAfterSuccess(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	h.touch(r.Attempt)
	got := h.wantStatus(r.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded)
	equal(h, "heartbeat", got.Attempt.LastHeartbeatTime.Valid, true)
	equal(h, "spans", h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID}).Total, 1)
}

func testOldAttempt(h *harness) {
	r := h.enqueue(config(retry(2, agl.AttemptUnresponsive)))[0]
	first := h.dequeueOne("", r.RolloutID)
	h.report(r.RolloutID, first.Attempt.AttemptID, agl.AttemptUnresponsive)
	second := h.dequeueOne("", r.RolloutID)
	h.touch(first.Attempt)
	h.wantStatus(r.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	attempts := h.attempts(r.RolloutID)
	equal(h, "old attempt", attempts[0].Status, agl.AttemptRunning)
	h.report(r.RolloutID, first.Attempt.AttemptID, agl.AttemptSucceeded)
	h.wantStatus(r.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	h.report(r.RolloutID, second.Attempt.AttemptID, agl.AttemptFailed)
	h.wantStatus(r.RolloutID, agl.RolloutFailed, agl.AttemptFailed)
}

func testLateSuccess(h *harness) {
	r := h.enqueue(config(retry(2, agl.AttemptTimeout)))[0]
	first := h.dequeueOne("", r.RolloutID)
	h.report(r.RolloutID, first.Attempt.AttemptID, agl.AttemptTimeout)
	h.wantStatus(r.RolloutID, agl.RolloutRequeuing, agl.AttemptTimeout)
	h.touch(first.Attempt)
	h.wantStatus(r.RolloutID, agl.RolloutRequeuing, agl.AttemptTimeout)
	h.report(r.RolloutID, first.Attempt.AttemptID, agl.AttemptSucceeded)
	h.wantStatus(r.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded)
	h.wantEmptyQueue()
}

func testFailedToSucceeded(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptUnresponsive)
	h.wantStatus(r.RolloutID, agl.RolloutFailed, agl.AttemptUnresponsive)
	h.touch(r.Attempt)
	h.wantStatus(r.RolloutID, agl.RolloutFailed, agl.AttemptRunning)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	h.wantStatus(r.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded)
}

func testSucceededToFailed(h *harness) {
	r := h.start(config(retry(5, agl.AttemptFailed, agl.AttemptTimeout)), "")
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptTimeout)
	h.wantStatus(r.RolloutID, agl.RolloutSucceeded, agl.AttemptTimeout)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptFailed)
	h.wantStatus(r.RolloutID, agl.RolloutFailed, agl.AttemptFailed)
	h.wantEmptyQueue()
}

func testLiveOnFinished(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptFailed)
	end := h.get(r.RolloutID).EndTime
	a := h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptRunning)
	equal(h, "attempt has an end time", a.EndTime.Valid, false)
	got := h.wantStatus(r.RolloutID, agl.RolloutFailed, agl.AttemptRunning)
	equal(h, "end time", got.EndTime, end)
}

func testReopenByAttempt(h *harness) {
	for _, status := range []agl.RolloutStatus{agl.RolloutFailed, agl.RolloutSucceeded, agl.RolloutCancelled} {
		r := h.enqueueOne()
		h.setStatus(r.RolloutID, status)
		h.wantStatus(r.RolloutID, status, "")
		got := h.startAttempt(r.RolloutID, "")
		equal(h, "reopened", got.Status, agl.RolloutPreparing)
		h.wantStatus(r.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
		h.wantEmptyQueue()
	}
	// max_attempts does not limit it.
	r := h.start(config(agl.RolloutConfig{}), "")
	equal(h, "number", h.startAttempt(r.RolloutID, "").Attempt.SequenceID, 2)
	h.wantError(errorOf(h.Store.StartAttempt(h.ctx, agl.StartAttemptParams{RolloutID: "nope"})), agl.ErrNotFound, "Rollout nope not found")
}

// testDerivation tests every combination of attempt status, retry condition and number of the attempt.
func testDerivation(h *harness) {
	for _, status := range agl.AttemptStatuses() {
		for _, most := range []int{1, 2} {
			for _, on := range append(agl.AttemptStatuses(), "") {
				c := retry(most)
				if on != "" {
					c = retry(most, on)
				}
				want := agl.RolloutFailed
				switch {
				case status == agl.AttemptPreparing:
					want = agl.RolloutPreparing
				case status == agl.AttemptRunning:
					want = agl.RolloutRunning
				case status == agl.AttemptSucceeded:
					want = agl.RolloutSucceeded
				case status == on && most > 1:
					want = agl.RolloutRequeuing
				}
				r := h.start(config(c), "")
				a := h.report(r.RolloutID, agl.LatestAttempt, status)
				equal(h, "end time of "+string(status), a.EndTime.Valid, !status.Live())
				h.wantStatus(r.RolloutID, want, status)
			}
		}
	}
}
