package storetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// longWait is the timeout of a blocked call: longer than any test run, so that only an
// event can end the call.
const longWait = time.Hour

func queueTests(a *area) {
	a.test("first in, first out", testFIFO)
	a.test("limits", testDequeueLimits)
	a.test("cancelled and started rollouts are passed over", testPassOver)
	a.test("a retry goes to the end", testRetryAtEnd)
	a.test("each rollout is claimed once", testClaimOnce)
	a.test("a blocked dequeue gets what is enqueued", testBlockedDequeue)
	a.test("a blocked dequeue gets what is requeued", testBlockedRequeue)
	a.test("a blocked dequeue ends with its context", testBlockedCancel)
	a.test("a blocked dequeue ends in time", testBlockedTimeout)
	a.test("a claim whose caller is gone is given back", testGivenBack)
	a.test("returned claims go to the head", testReturnClaims)
	a.test("claims are returned by the key of their dequeue", testReturnByKey)
	a.test("a blocked dequeue whose key is revoked", testRevokeBlocked)
	a.test("closed queue", testClosedQueue)
}

func numbered(n int) []agl.EnqueueRollout {
	out := make([]agl.EnqueueRollout, n)
	for i := range out {
		out[i].Input = jsontext.Value(strconv.Itoa(i))
	}
	return out
}

func inputs(rollouts []agl.AttemptedRollout) string {
	return ids(rollouts, func(r *agl.AttemptedRollout) string { return string(r.Input) })
}

func testFIFO(h *harness) {
	h.enqueue(numbered(3)...)
	h.enqueue(agl.EnqueueRollout{Input: jsontext.Value(`3`)})
	equal(h, "order", inputs(h.dequeue(1, "")), "0")
	equal(h, "order", inputs(h.dequeue(2, "")), "1 2")
	equal(h, "order", inputs(h.dequeue(2, "")), "3")
	h.wantEmptyQueue()
}

func testDequeueLimits(h *harness) {
	h.enqueue(numbered(2)...)
	equal(h, "none", len(h.dequeue(0, "")), 0)
	equal(h, "less than none", len(h.dequeue(-1, "")), 0)
	equal(h, "all", inputs(h.dequeue(100, "")), "0 1")
	equal(h, "enqueue nothing", len(h.enqueue()), 0)
}

func testPassOver(h *harness) {
	r := h.enqueue(numbered(5)...)
	h.cancel(r[0].RolloutID)
	h.startAttempt(r[2].RolloutID, "")
	h.wantStatus(r[2].RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	h.setStatus(r[3].RolloutID, agl.RolloutRunning)
	equal(h, "left", inputs(h.dequeue(10, "")), "1 4")
}

func testRetryAtEnd(h *harness) {
	r := h.enqueue(config(retry(2, agl.AttemptFailed)), agl.EnqueueRollout{Input: jsontext.Value(`2`)})
	first := h.dequeueOne("", r[0].RolloutID)
	h.report(r[0].RolloutID, first.Attempt.AttemptID, agl.AttemptFailed)
	h.dequeueOne("", r[1].RolloutID)
	h.dequeueOne("", r[0].RolloutID)
}

func testClaimOnce(h *harness) {
	const rollouts, workers = 60, 6
	h.enqueue(numbered(rollouts)...)
	var mu sync.Mutex
	var seen []string
	h.together(workers, func(i int) error {
		for {
			got, err := h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 2, WorkerID: agl.Some("w" + strconv.Itoa(i))})
			if err != nil || len(got.Rollouts) == 0 {
				return err
			}
			mu.Lock()
			for i := range got.Rollouts {
				seen = append(seen, string(got.Rollouts[i].Input))
			}
			mu.Unlock()
		}
	})
	slices.Sort(seen)
	equal(h, "claims", len(seen), rollouts)
	equal(h, "different rollouts", len(slices.Compact(seen)), rollouts)
}

// block dequeues in the background.
func (h *harness) block(p agl.DequeueRolloutsParams) <-chan agl.DequeueResult {
	return background(h, func() (agl.DequeueResult, error) { return h.Store.DequeueRollouts(h.ctx, p) })
}

func testBlockedDequeue(h *harness) {
	const waiters = 5
	results := make([]<-chan agl.DequeueResult, waiters)
	for i := range results {
		results[i] = h.block(agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some("w" + strconv.Itoa(i)), Wait: longWait})
	}
	var seen []string
	h.enqueue(numbered(waiters)...)
	for i, result := range results {
		got := <-result
		if len(got.Rollouts) != 1 {
			h.Fatalf("got %d rollouts, want one", len(got.Rollouts))
		}
		seen = append(seen, string(got.Rollouts[0].Input))
		w := h.worker("w" + strconv.Itoa(i))
		equal(h, "worker", w.Status, agl.WorkerBusy)
		equal(h, "its attempt", w.CurrentAttemptID, agl.Some(got.Rollouts[0].Attempt.AttemptID))
	}
	slices.Sort(seen)
	equal(h, "different rollouts", len(slices.Compact(seen)), waiters)
	h.wantEmptyQueue()
}

func testBlockedRequeue(h *harness) {
	r := h.start(config(retry(2, agl.AttemptFailed)), "")
	result := h.block(agl.DequeueRolloutsParams{Limit: 1, Wait: longWait})
	h.report(r.RolloutID, r.Attempt.AttemptID, agl.AttemptFailed)
	got := <-result
	if len(got.Rollouts) != 1 || got.Rollouts[0].Attempt.SequenceID != 2 {
		h.Fatalf("got %v, want the second attempt", got)
	}
}

func testBlockedCancel(h *harness) {
	h.wantCancelled(func(ctx context.Context) error {
		return errorOf(h.Store.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: longWait}))
	})
	r := h.enqueueOne()
	h.dequeueOne("", r.RolloutID)
}

func testBlockedTimeout(h *harness) {
	if h.Advance == nil {
		equal(h, "rollouts", len(must(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Millisecond}))(h).Rollouts), 0)
		return
	}
	got := advanced(h, h.block(agl.DequeueRolloutsParams{Limit: 1, Wait: time.Minute}))
	equal(h, "rollouts", len(got.Rollouts), 0)
	equal(h, "closed", got.Closed, false)
	r := h.enqueueOne()
	h.dequeueOne("", r.RolloutID)
}

// testGivenBack cancels callers while they are being served. No rollout may be lost or
// claimed twice.
func testGivenBack(h *harness) {
	const rollouts = 30
	var (
		mu      sync.Mutex
		claimed []string
		wg      sync.WaitGroup
	)
	for i := range rollouts {
		ctx, cancel := context.WithCancel(h.ctx)
		wg.Go(func() {
			got, err := h.Store.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: longWait})
			if err != nil && !errors.Is(err, context.Canceled) {
				h.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range got.Rollouts {
				claimed = append(claimed, r.RolloutID)
			}
		})
		wg.Go(cancel)
		h.enqueue(numbered(i%2 + 1)...)
	}
	wg.Wait()
	// A server may return a claim after its client has seen the error.
	for len(claimed) < rollouts/2*3 {
		for _, r := range must(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 100, Wait: longWait}))(h).Rollouts {
			equal(h, "number", r.Attempt.SequenceID, 1)
			claimed = append(claimed, r.RolloutID)
		}
	}
	slices.Sort(claimed)
	equal(h, "different claims", len(slices.Compact(claimed)), rollouts/2*3)
	h.wantEmptyQueue()
}

func (h *harness) needReturnClaims() {
	h.Helper()
	if !h.Store.Capabilities().ReturnClaims {
		h.Skip("the store does not return claims")
	}
}

func (h *harness) returnClaims(rollouts ...agl.AttemptedRollout) {
	h.Helper()
	h.ok(h.Store.ReturnClaims(h.ctx, agl.ReturnClaimsParams{Claims: agl.ClaimsOf(rollouts...)}))
}

func testReturnClaims(h *harness) {
	h.needReturnClaims()
	h.enqueue(numbered(4)...)
	claims := h.dequeue(3, "w")
	h.touch(claims[1].Attempt)
	h.returnClaims(claims...)
	h.wantStatus(claims[0].RolloutID, agl.RolloutQueuing, "")
	h.wantStatus(claims[1].RolloutID, agl.RolloutRunning, agl.AttemptRunning)
	equal(h, "worker", h.worker("w").Status, agl.WorkerIdle)
	again := h.dequeue(10, "")
	equal(h, "order", inputs(again), "0 2 3")
	equal(h, "number", again[0].Attempt.SequenceID, 1)

	// A heartbeat does not count as work.
	h.enqueueOne()
	beaten := h.dequeue(1, "v")
	updated := must(h.Store.UpdateWorker(h.ctx, agl.UpdateWorkerParams{WorkerID: "v"}))(h)
	equal(h, "attempt of the worker", updated.CurrentAttemptID, agl.Some(beaten[0].Attempt.AttemptID))
	h.returnClaims(beaten...)
	h.wantStatus(beaten[0].RolloutID, agl.RolloutQueuing, "")
	h.dequeueOne("", beaten[0].RolloutID)

	// A returned retry is requeuing again.
	r := h.enqueue(config(retry(3, agl.AttemptFailed)))[0]
	h.report(r.RolloutID, h.dequeueOne("", r.RolloutID).Attempt.AttemptID, agl.AttemptFailed)
	h.returnClaims(h.dequeue(1, "")...)
	h.wantStatus(r.RolloutID, agl.RolloutRequeuing, agl.AttemptFailed)
	equal(h, "number", h.dequeueOne("", r.RolloutID).Attempt.SequenceID, 2)
}

// testReturnByKey returns claims whose answers were lost.
func testReturnByKey(h *harness) {
	h.needReturnClaims()
	dequeue := agl.DequeueRolloutsParams{Limit: 2, WorkerID: agl.Some("w"), IdempotencyKey: "k"}
	claim := func() []agl.AttemptedRollout {
		h.Helper()
		return must(h.Store.DequeueRollouts(h.ctx, dequeue))(h).Rollouts
	}
	giveBack := func(revoke bool) {
		h.Helper()
		h.ok(h.Store.ReturnClaims(h.ctx, agl.ReturnClaimsParams{IdempotencyKey: "k", RevokeKey: revoke}))
	}
	giveBack(false) // of a dequeue that never happened
	r := h.enqueue(numbered(3)...)
	first := claim()
	equal(h, "claimed", inputs(first), "0 1")
	giveBack(false)
	giveBack(false)
	for i := range first {
		h.wantStatus(r[i].RolloutID, agl.RolloutQueuing, "")
	}
	equal(h, "worker", h.worker("w").Status, agl.WorkerIdle)

	again := claim()
	equal(h, "claimed anew", inputs(again), "0 1")

	// An answer was lost, and a repeat has the claims, until its answer is lost, too.
	equal(h, "repeated", inputs(claim()), "0 1")
	lost := agl.ReturnClaimsParams{Claims: agl.ClaimsOf(again...), IdempotencyKey: "k"}
	h.ok(h.Store.ReturnClaims(h.ctx, lost))
	h.wantStatus(r[0].RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	h.ok(h.Store.ReturnClaims(h.ctx, lost))
	h.wantStatus(r[0].RolloutID, agl.RolloutQueuing, "")
	again = claim()
	equal(h, "claimed once more", inputs(again), "0 1")
	equal(h, "another attempt", again[0].Attempt.AttemptID != first[0].Attempt.AttemptID, true)
	giveBack(true)
	giveBack(true)
	equal(h, "claimed with a revoked key", len(claim()), 0)
	equal(h, "claimed by others", inputs(h.dequeue(9, "")), "0 1 2")

	// The dequeue arrives after its key was revoked.
	dequeue.IdempotencyKey = "late"
	h.ok(h.Store.ReturnClaims(h.ctx, agl.ReturnClaimsParams{IdempotencyKey: "late", RevokeKey: true}))
	h.enqueueOne()
	dequeue.Wait = longWait
	equal(h, "claimed by a late dequeue", len(claim()), 0)
	equal(h, "left for others", len(h.dequeue(9, "")), 1)

	err := h.Store.ReturnClaims(h.ctx, agl.ReturnClaimsParams{RevokeKey: true})
	h.wantError(err, agl.ErrInvalid, "")
}

// testRevokeBlocked revokes the key of a blocked dequeue, which then claims nothing.
func testRevokeBlocked(h *harness) {
	h.needReturnClaims()
	result := h.block(agl.DequeueRolloutsParams{Limit: 1, Wait: longWait, IdempotencyKey: "k"})
	h.ok(h.Store.ReturnClaims(h.ctx, agl.ReturnClaimsParams{IdempotencyKey: "k", RevokeKey: true}))
	r := h.enqueueOne()
	equal(h, "claimed", len((<-result).Rollouts), 0)
	h.dequeueOne("", r.RolloutID)
}

func testClosedQueue(h *harness) {
	result := h.block(agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some("w"), Wait: longWait})
	h.ok(h.Store.CloseQueue(h.ctx))
	got := <-result
	equal(h, "closed", got.Closed, true)
	equal(h, "rollouts", len(got.Rollouts), 0)
	r := h.enqueueOne()
	got = must(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: longWait}))(h)
	equal(h, "closed", got.Closed, true)
	equal(h, "rollouts", len(got.Rollouts), 0)
	h.ok(h.Store.CloseQueue(h.ctx))
	h.ok(h.Store.OpenQueue(h.ctx))
	h.dequeueOne("", r.RolloutID)
}
