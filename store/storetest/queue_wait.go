package storetest

import (
	"context"
	"time"

	"github.com/agl-go/agl"
)

func waitTests(a *area) {
	a.test("what is finished already", testWaitFinished)
	a.test("until all are finished", testWaitAll)
	a.test("timeout", testWaitTimeout)
	a.test("context", testWaitContext)
	a.test("a reopened rollout blocks again", testWaitReopened)
	a.test("a deleted rollout is dropped", testWaitDeleted)
	a.test("many waits", testManyWaits)
}

func rolloutIDs(rollouts []agl.Rollout) string {
	return ids(rollouts, func(r *agl.Rollout) string { return r.RolloutID })
}

// waitFor waits in the background, without a timeout.
func (h *harness) waitFor(ids ...string) <-chan []agl.Rollout {
	return background(h, func() ([]agl.Rollout, error) {
		return h.Store.WaitForRollouts(h.ctx, agl.WaitForRolloutsParams{RolloutIDs: ids})
	})
}

// peek returns the finished rollouts without waiting.
func (h *harness) peek(ids ...string) []agl.Rollout {
	h.Helper()
	return must(h.Store.WaitForRollouts(h.ctx, agl.WaitForRolloutsParams{RolloutIDs: ids, Timeout: agl.Some(time.Duration(0))}))(h)
}

func testWaitFinished(h *harness) {
	r := h.enqueue(numbered(3)...)
	a, b, c := r[0].RolloutID, r[1].RolloutID, r[2].RolloutID
	h.setStatus(c, agl.RolloutSucceeded)
	h.setStatus(a, agl.RolloutCancelled)
	equal(h, "finished", rolloutIDs(h.peek(a, b, c)), a+" "+c)
	equal(h, "in order, repeated", rolloutIDs(h.peek(c, "nope", a, c)), c+" "+a+" "+c)
	equal(h, "without a timeout", rolloutIDs(<-h.waitFor(c, "nope", a)), c+" "+a)
	equal(h, "unknown only", len(<-h.waitFor("nope")), 0)
	equal(h, "nothing", len(<-h.waitFor()), 0)
	got := must(h.Store.WaitForRollouts(h.ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{b}, Timeout: agl.Some(-time.Second)}))(h)
	equal(h, "negative timeout", len(got), 0)
}

func testWaitAll(h *harness) {
	r := h.enqueue(numbered(3)...)
	a, b, c := r[0].RolloutID, r[1].RolloutID, r[2].RolloutID
	done := h.waitFor(c, a, b, a)
	h.dequeue(3, "")
	h.report(a, agl.LatestAttempt, agl.AttemptSucceeded)
	h.report(b, agl.LatestAttempt, agl.AttemptFailed)
	select {
	case got := <-done:
		h.Fatalf("returned %s before all were finished", rolloutIDs(got))
	default:
	}
	h.cancel(c)
	equal(h, "finished", rolloutIDs(<-done), c+" "+a+" "+b+" "+a)
}

func testWaitTimeout(h *harness) {
	r := h.enqueue(numbered(2)...)
	h.setStatus(r[0].RolloutID, agl.RolloutFailed)
	both := []string{r[0].RolloutID, r[1].RolloutID}
	if h.Advance == nil {
		got := must(h.Store.WaitForRollouts(h.ctx, agl.WaitForRolloutsParams{RolloutIDs: both, Timeout: agl.Some(time.Millisecond)}))(h)
		equal(h, "finished", rolloutIDs(got), r[0].RolloutID)
		return
	}
	done := background(h, func() ([]agl.Rollout, error) {
		return h.Store.WaitForRollouts(h.ctx, agl.WaitForRolloutsParams{RolloutIDs: both, Timeout: agl.Some(time.Minute)})
	})
	equal(h, "finished", rolloutIDs(advanced(h, done)), r[0].RolloutID)
}

func testWaitContext(h *harness) {
	r := h.enqueueOne()
	h.wantCancelled(func(ctx context.Context) error {
		return errorOf(h.Store.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{r.RolloutID}}))
	})
}

func testWaitReopened(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptFailed)
	equal(h, "finished", len(h.peek(r.RolloutID)), 1)
	h.startAttempt(r.RolloutID, "")
	equal(h, "reopened", len(h.peek(r.RolloutID)), 0)
	done := h.waitFor(r.RolloutID)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	got := <-done
	if len(got) != 1 || got[0].Status != agl.RolloutSucceeded {
		h.Errorf("waited for %v, want the success", got)
	}
}

func testWaitDeleted(h *harness) {
	r := h.enqueue(numbered(2)...)
	done := h.waitFor(r[0].RolloutID, r[1].RolloutID)
	h.cancel(r[0].RolloutID)
	h.ok(h.Store.DeleteRollout(h.ctx, agl.DeleteRolloutParams{RolloutID: r[0].RolloutID}))
	h.cancel(r[1].RolloutID)
	equal(h, "left", rolloutIDs(<-done), r[1].RolloutID)
}

func testManyWaits(h *harness) {
	r := h.enqueue(numbered(4)...)
	var done []<-chan []agl.Rollout
	for i := range 12 {
		done = append(done, h.waitFor(r[i%4].RolloutID, r[(i+1)%4].RolloutID))
	}
	for i := range r {
		h.cancel(r[i].RolloutID)
	}
	for _, d := range done {
		equal(h, "finished", len(<-d), 2)
	}
}
