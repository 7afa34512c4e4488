package storetest

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

func idempotencyTests(a *area) {
	a.test("repeats change nothing", testRepeats)
	a.test("other arguments conflict", testConflicts)
	a.test("scope is the operation and its path", testKeyScope)
	a.test("a repeat waits for the first", testRepeatWaits)
	a.test("a repeat that comes too late", testRepeatTooLate)
	a.test("keys are forgotten", testKeysForgotten)
}

func testRepeats(h *harness) {
	counts := func() [3]int {
		got := must(h.Store.Statistics(h.ctx))(h)
		return [3]int{got.TotalRollouts, got.TotalAttempts, got.TotalResources}
	}
	var claimed, started, resources string
	steps := []struct {
		name string
		call func() string
		want *string
	}{
		{"enqueue", func() string {
			return rolloutIDs(must(h.Store.EnqueueRollouts(h.ctx, agl.EnqueueRolloutsParams{Rollouts: numbered(2), IdempotencyKey: "k"}))(h))
		}, nil},
		{"dequeue", func() string {
			claims := must(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 2, WorkerID: agl.Some("w"), IdempotencyKey: "k"}))(h).Rollouts
			return ids(claims, func(r *agl.AttemptedRollout) string { return r.RolloutID + r.Attempt.AttemptID })
		}, &claimed},
		{"start rollout", func() string {
			got := must(h.Store.StartRollout(h.ctx, agl.StartRolloutParams{EnqueueRollout: numbered(1)[0], IdempotencyKey: "k"}))(h)
			started = got.RolloutID
			return got.RolloutID + got.Attempt.AttemptID
		}, nil},
		{"start attempt", func() string {
			return must(h.Store.StartAttempt(h.ctx, agl.StartAttemptParams{RolloutID: started, IdempotencyKey: "k"}))(h).Attempt.AttemptID
		}, nil},
		{"add resources", func() string {
			return must(h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: bundle("m"), IdempotencyKey: "k"}))(h).ResourcesID
		}, &resources},
		{"update resources", func() string {
			got := must(h.Store.UpdateResources(h.ctx, agl.UpdateResourcesParams{ResourcesID: "x", Resources: bundle("m"), IdempotencyKey: "k"}))(h)
			if v := got.Version; v != 1 {
				h.Errorf("version %d, want 1", v)
			}
			return got.ResourcesID
		}, nil},
	}
	for _, step := range steps {
		first := step.call()
		before := counts()
		for range 2 {
			equal(h, step.name+" again", step.call(), first)
		}
		equal(h, step.name+" counts", counts(), before)
	}
	h.wantEmptyQueue()
}

func testConflicts(h *harness) {
	must(h.Store.EnqueueRollouts(h.ctx, agl.EnqueueRolloutsParams{Rollouts: numbered(1), IdempotencyKey: "k"}))(h)
	h.wantError(errorOf(h.Store.EnqueueRollouts(h.ctx, agl.EnqueueRolloutsParams{Rollouts: numbered(2), IdempotencyKey: "k"})), agl.ErrConflict, "")
	must(h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: bundle("m"), IdempotencyKey: "k"}))(h)
	h.wantError(errorOf(h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: bundle("n"), IdempotencyKey: "k"})), agl.ErrConflict, "")
	equal(h, "claims", len(must(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 1, IdempotencyKey: "k"}))(h).Rollouts), 1)
	h.wantError(errorOf(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 2, IdempotencyKey: "k"})), agl.ErrConflict, "")
	equal(h, "rollouts", h.rollouts(agl.QueryRolloutsParams{}).Total, 1)
}

func testKeyScope(h *harness) {
	a, b := h.start(config(agl.RolloutConfig{}), ""), h.start(config(agl.RolloutConfig{}), "")
	for _, r := range []agl.AttemptedRollout{a, b, a} {
		got := must(h.Store.StartAttempt(h.ctx, agl.StartAttemptParams{RolloutID: r.RolloutID, IdempotencyKey: "k"}))(h)
		equal(h, "rollout", got.RolloutID, r.RolloutID)
		equal(h, "number", got.Attempt.SequenceID, 2)
	}
	for _, key := range []string{"k1", "k2"} {
		must(h.Store.EnqueueRollouts(h.ctx, agl.EnqueueRolloutsParams{Rollouts: numbered(1), IdempotencyKey: key}))(h)
	}
	equal(h, "rollouts", h.rollouts(agl.QueryRolloutsParams{}).Total, 4)
}

func testRepeatWaits(h *harness) {
	const callers = 5
	var results [callers]<-chan agl.DequeueResult
	for i := range results {
		results[i] = h.block(agl.DequeueRolloutsParams{Limit: 1, Wait: longWait, IdempotencyKey: "k"})
	}
	r := h.enqueueOne()
	for _, result := range results {
		got := ids((<-result).Rollouts, func(r *agl.AttemptedRollout) string { return r.RolloutID + r.Attempt.AttemptID })
		equal(h, "claim", got, r.RolloutID+h.get(r.RolloutID).Attempt.AttemptID)
	}
	equal(h, "attempts", len(h.attempts(r.RolloutID)), 1)
}

// testRepeatTooLate repeats a dequeue when others work on what it had claimed, or nobody should.
func testRepeatTooLate(h *harness) {
	r := h.enqueue(append(numbered(3), config(retry(2, agl.AttemptFailed)))...)
	claim := func() string {
		claims := must(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 4, IdempotencyKey: "k"}))(h).Rollouts
		return ids(claims, func(r *agl.AttemptedRollout) string { return r.RolloutID })
	}
	equal(h, "claimed", claim(), rolloutIDs(r))
	must(h.Store.CancelRollout(h.ctx, agl.CancelRolloutParams{RolloutID: r[0].RolloutID}))(h)
	must(h.Store.StartAttempt(h.ctx, agl.StartAttemptParams{RolloutID: r[1].RolloutID}))(h)
	h.report(r[3].RolloutID, agl.LatestAttempt, agl.AttemptFailed)
	equal(h, "still to be run, or in the queue again", claim(), rolloutIDs(r[2:]))
	h.dequeueOne("", r[3].RolloutID)
	equal(h, "still to be run", claim(), rolloutIDs(r[2:3]))
}

func testKeysForgotten(h *harness) {
	h.needClock()
	enqueue := func() string {
		got := must(h.Store.EnqueueRollouts(h.ctx, agl.EnqueueRolloutsParams{
			Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value(`1`)}}, IdempotencyKey: "k",
		}))(h)
		return rolloutIDs(got)
	}
	first := enqueue()
	h.Advance(9 * time.Minute)
	equal(h, "after 9 minutes", enqueue(), first)
	h.Advance(25 * time.Hour)
	if enqueue() == first {
		h.Error("the key is still known after a day")
	}
}
