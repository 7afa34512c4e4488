package storetest

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

func updateTests(a *area) {
	a.test("rollout fields are replaced one by one", testUpdateFields)
	a.test("rollout status by hand", testUpdateStatus)
	a.test("a finished rollout cannot be made to run", testUpdateIllegal)
	a.test("finished again is stamped again", testRestamp)
	a.test("requeued by hand at most once", testRequeueOnce)
	a.test("attempt fields leave the rollout alone", testAttemptFields)
	a.test("unknown ids", testUpdateUnknown)
	a.test("bad values", testUpdateInvalid)
}

func testUpdateFields(h *harness) {
	r := h.enqueue(agl.EnqueueRollout{Input: jsontext.Value(`1`), Mode: agl.ModeVal, Metadata: jsontext.Value(`{"a":1}`)})[0]
	update := func(p agl.UpdateRolloutParams) agl.Rollout {
		p.RolloutID = r.RolloutID
		return must(h.Store.UpdateRollout(h.ctx, p))(h)
	}
	equal(h, "input", string(update(agl.UpdateRolloutParams{Input: jsontext.Value(`"x"`)}).Input), `"x"`)
	equal(h, "null input", string(update(agl.UpdateRolloutParams{Input: rawjson.Null()}).Input), `null`)
	none, test := agl.ModeNone, agl.ModeTest
	equal(h, "mode", update(agl.UpdateRolloutParams{Mode: &test}).Mode, test)
	equal(h, "null mode", update(agl.UpdateRolloutParams{Mode: &none}).Mode, none)
	id, noID := agl.Some("rs-1"), agl.Null[string]{}
	equal(h, "resources", update(agl.UpdateRolloutParams{ResourcesID: &id}).ResourcesID, id)
	equal(h, "null resources", update(agl.UpdateRolloutParams{ResourcesID: &noID}).ResourcesID, noID)
	equal(h, "metadata", string(update(agl.UpdateRolloutParams{Metadata: jsontext.Value(`{"b":2}`)}).Metadata), `{"b":2}`)
	equal(h, "null metadata", len(update(agl.UpdateRolloutParams{Metadata: rawjson.Null()}).Metadata), 0)
	c := retry(3, agl.AttemptFailed)
	equal(h, "config", update(agl.UpdateRolloutParams{Config: &c}).Config.MaxAttempts, 3)
	equal(h, "status", h.get(r.RolloutID).Status, agl.RolloutQueuing)
}

func testUpdateStatus(h *harness) {
	r := h.enqueueOne()
	h.setStatus(r.RolloutID, agl.RolloutRunning)
	h.wantStatus(r.RolloutID, agl.RolloutRunning, "")
	h.wantEmptyQueue()
	h.setStatus(r.RolloutID, agl.RolloutRequeuing)
	claimed := h.dequeueOne("", r.RolloutID)
	h.setStatus(r.RolloutID, agl.RolloutSucceeded)
	h.wantStatus(r.RolloutID, agl.RolloutSucceeded, agl.AttemptPreparing)
	h.setStatus(r.RolloutID, agl.RolloutQueuing)
	h.wantStatus(r.RolloutID, agl.RolloutQueuing, agl.AttemptPreparing)
	again := h.dequeueOne("", r.RolloutID)
	equal(h, "number", again.Attempt.SequenceID, claimed.Attempt.SequenceID+1)
}

func testUpdateIllegal(h *harness) {
	for _, finished := range []agl.RolloutStatus{agl.RolloutFailed, agl.RolloutSucceeded, agl.RolloutCancelled} {
		r := h.enqueueOne()
		h.setStatus(r.RolloutID, finished)
		for _, status := range []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutRunning} {
			_, err := h.Store.UpdateRollout(h.ctx, agl.UpdateRolloutParams{
				RolloutID: r.RolloutID, Status: &status, Metadata: jsontext.Value(`{"no":1}`),
			})
			h.wantError(err, agl.ErrIllegalState, "")
		}
		got := h.wantStatus(r.RolloutID, finished, "")
		equal(h, "metadata", string(got.Metadata), `{}`)
	}
}

func testRestamp(h *harness) {
	h.needClock()
	r := h.enqueueOne()
	first := h.setStatus(r.RolloutID, agl.RolloutFailed)
	h.Advance(second)
	again := h.setStatus(r.RolloutID, agl.RolloutFailed)
	if again.EndTime.V <= first.EndTime.V {
		h.Errorf("end time %v, then %v, want a later one", first.EndTime, again.EndTime)
	}
	// A status that only follows stamps nothing again.
	a := h.start(config(agl.RolloutConfig{}), "")
	h.report(a.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	end := h.get(a.RolloutID).EndTime
	h.Advance(second)
	h.report(a.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	equal(h, "end time", h.get(a.RolloutID).EndTime, end)
}

func testRequeueOnce(h *harness) {
	r := h.enqueueOne()
	h.setStatus(r.RolloutID, agl.RolloutRequeuing)
	h.setStatus(r.RolloutID, agl.RolloutQueuing)
	h.dequeueOne("", r.RolloutID)
	h.wantEmptyQueue()
}

func testAttemptFields(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "w")
	h.setStatus(r.RolloutID, agl.RolloutQueuing)
	update := func(p agl.UpdateAttemptParams) agl.Attempt {
		h.Helper()
		p.RolloutID = r.RolloutID
		return must(h.Store.UpdateAttempt(h.ctx, p))(h)
	}
	at := agl.Timestamp(12.5)
	a := update(agl.UpdateAttemptParams{AttemptID: r.Attempt.AttemptID, LastHeartbeatTime: &at, Metadata: jsontext.Value(`{"k":[1]}`)})
	equal(h, "heartbeat", a.LastHeartbeatTime, agl.Some(at))
	equal(h, "metadata", string(a.Metadata), `{"k":[1]}`)
	h.wantStatus(r.RolloutID, agl.RolloutQueuing, agl.AttemptPreparing)
	other := "v"
	equal(h, "worker", update(agl.UpdateAttemptParams{AttemptID: agl.LatestAttempt, WorkerID: &other}).WorkerID, agl.Some(other))
	h.wantStatus(r.RolloutID, agl.RolloutQueuing, agl.AttemptPreparing)
	equal(h, "new worker", h.worker("v").CurrentAttemptID, agl.Some(r.Attempt.AttemptID))
	equal(h, "old worker", h.worker("w").Status, agl.WorkerIdle)
	nobody := ""
	equal(h, "no worker", update(agl.UpdateAttemptParams{AttemptID: agl.LatestAttempt, WorkerID: &nobody}).WorkerID, agl.Some(""))
}

func testUpdateUnknown(h *harness) {
	status := agl.AttemptRunning
	report := func(rolloutID, attemptID string) error {
		return errorOf(h.Store.UpdateAttempt(h.ctx, agl.UpdateAttemptParams{RolloutID: rolloutID, AttemptID: attemptID, Status: &status}))
	}
	h.wantError(report("nope", "latest"), agl.ErrNotFound, "Rollout nope not found")
	r := h.enqueueOne()
	h.wantError(report(r.RolloutID, "latest"), agl.ErrNotFound, "No attempts found for rollout "+r.RolloutID)
	h.wantError(report(r.RolloutID, "at-x"), agl.ErrNotFound, "No attempts found for rollout "+r.RolloutID)
	started := h.start(config(agl.RolloutConfig{}), "")
	h.wantError(report(started.RolloutID, "at-x"), agl.ErrNotFound, "Attempt at-x not found for rollout "+started.RolloutID)
	_, err := h.Store.UpdateRollout(h.ctx, agl.UpdateRolloutParams{RolloutID: "nope", Input: jsontext.Value(`1`)})
	h.wantError(err, agl.ErrNotFound, "Item does not exist with primary key(s): rollout_id='nope'")
	h.wantError(errorOf(h.Store.GetRollout(h.ctx, agl.GetRolloutParams{RolloutID: "nope"})), agl.ErrNotFound, "")
	h.wantError(errorOf(h.Store.GetLatestAttempt(h.ctx, agl.GetLatestAttemptParams{RolloutID: r.RolloutID})), agl.ErrNotFound, "")
	equal(h, "attempts of nothing", len(h.attempts("nope")), 0)
	h.dequeueOne("", r.RolloutID)
	latest := must(h.Store.GetLatestAttempt(h.ctx, agl.GetLatestAttemptParams{RolloutID: r.RolloutID}))(h)
	equal(h, "latest attempt", latest.SequenceID, 1)
}

func testUpdateInvalid(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	badStatus, badMode, badAttempt := agl.RolloutStatus("done"), agl.Mode("best"), agl.AttemptStatus("cancelled")
	badConfig := agl.RolloutConfig{MaxAttempts: -1}
	for _, p := range []agl.UpdateRolloutParams{{Status: &badStatus}, {Mode: &badMode}, {Config: &badConfig}} {
		p.RolloutID = r.RolloutID
		h.wantError(errorOf(h.Store.UpdateRollout(h.ctx, p)), agl.ErrInvalid, "")
	}
	_, err := h.Store.UpdateAttempt(h.ctx, agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: "latest", Status: &badAttempt})
	h.wantError(err, agl.ErrInvalid, "")
	_, err = h.Store.EnqueueRollouts(h.ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{
		{Input: jsontext.Value(`1`)}, {Input: jsontext.Value(`1`), Config: &badConfig},
	}})
	h.wantError(err, agl.ErrInvalid, "")
	h.wantStatus(r.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	h.wantEmptyQueue()
}
