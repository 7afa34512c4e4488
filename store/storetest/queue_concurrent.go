package storetest

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

func concurrentTests(a *area) {
	a.test("algorithms and runners at once", testTraining)
}

// testTraining runs several algorithms and runners on one store. Every third first
// attempt fails. Nothing may be lost, done twice, or left over.
func testTraining(h *harness) {
	const algorithms, batch, runners = 6, 8, 6
	var attempts, failures atomic.Int64
	runnersDone := make(chan struct{})
	go func() {
		defer close(runnersDone)
		h.together(runners, func(i int) error { return h.runnerLoop("w"+strconv.Itoa(i), &attempts, &failures) })
	}()
	h.together(algorithms, func(int) error { return h.trainBatch(batch) })
	h.ok(h.Store.CloseQueue(h.ctx))
	<-runnersDone
	const rollouts = algorithms * batch
	stats := must(h.Store.Statistics(h.ctx))(h)
	equal(h, "rollouts", stats.TotalRollouts, rollouts)
	equal(h, "attempts", int64(stats.TotalAttempts), attempts.Load())
	equal(h, "attempts", attempts.Load(), rollouts+failures.Load())
	equal(h, "spans", int64(stats.TotalSpans), 3*attempts.Load())
	done := h.rollouts(agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}})
	equal(h, "succeeded", done.Total, rollouts)
	for i := range runners {
		for _, w := range must(h.Store.QueryWorkers(h.ctx, agl.QueryWorkersParams{WorkerIDContains: "w" + strconv.Itoa(i)}))(h).Items {
			equal(h, w.WorkerID+" holds an attempt", w.CurrentAttemptID.Valid, false)
		}
	}
}

// trainBatch enqueues rollouts, waits for all of them and reads their spans.
func (h *harness) trainBatch(n int) error {
	c := retry(2, agl.AttemptFailed)
	p := agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, n)}
	for i := range p.Rollouts {
		p.Rollouts[i] = agl.EnqueueRollout{Input: jsontext.Value(strconv.Itoa(i)), Config: &c}
	}
	made, err := h.Store.EnqueueRollouts(h.ctx, p)
	if err != nil {
		return err
	}
	var wait agl.WaitForRolloutsParams
	for i := range made {
		wait.RolloutIDs = append(wait.RolloutIDs, made[i].RolloutID)
	}
	finished, err := h.Store.WaitForRollouts(h.ctx, wait)
	equal(h, "finished rollouts", len(finished), n)
	for _, r := range finished {
		spans, err := h.Store.QuerySpans(h.ctx, agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt})
		if err != nil {
			return err
		}
		equal(h, "spans of "+r.RolloutID, spans.Total, 3)
	}
	return err
}

// runnerLoop works until the queue is closed.
func (h *harness) runnerLoop(worker string, attempts, failures *atomic.Int64) error {
	for {
		got, err := h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some(worker), Wait: longWait})
		if err != nil || got.Closed {
			return err
		}
		for i := range got.Rollouts {
			n := attempts.Add(1)
			status := agl.AttemptSucceeded
			if n%3 == 0 && got.Rollouts[i].Attempt.SequenceID == 1 {
				status = agl.AttemptFailed
				failures.Add(1)
			}
			if err := h.workOn(h.ctx, got.Rollouts[i].Attempt, status); err != nil {
				return err
			}
		}
	}
}

// workOn stores three spans for an attempt and ends it.
func (h *harness) workOn(ctx context.Context, a *agl.Attempt, status agl.AttemptStatus) error {
	for i := range 3 {
		_, err := h.Store.AddSpans(ctx, agl.AddSpansParams{
			Spans: []agl.Span{span(a.RolloutID, a.AttemptID, strconv.Itoa(i), 0)}, IssueSequenceIDs: true,
		})
		if err != nil {
			return err
		}
	}
	return errorOf(h.Store.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: a.RolloutID, AttemptID: a.AttemptID, Status: &status}))
}
