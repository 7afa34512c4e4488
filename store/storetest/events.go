package storetest

import (
	"context"
	"errors"
	"strconv"

	"github.com/agl-go/agl"
)

func eventTests(a *area) {
	a.test("one event for each change", testEvents)
	a.test("resumed after an id", testEventsSince)
	a.test("unknown ids reset", testEventsReset)
	a.test("only what comes from now on", testEventsFromNow)
	a.test("the end of the context is the stream's error", testEventsContext)
}

// follow reads events in the background. It returns once the stream includes everything
// that happens from then on.
func (h *harness) follow(since string) (next func() agl.Event, stop func()) {
	ctx, cancel := context.WithCancel(h.ctx)
	events := make(chan agl.Event)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range h.Store.Events(ctx, agl.EventsParams{Since: since}) {
			if err != nil {
				if ctx.Err() == nil {
					h.Error(err)
				}
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() agl.Event {
			h.Helper()
			select {
			case e := <-events:
				return e
			case <-done:
				h.Fatal("the events ended")
				return agl.Event{}
			}
		}, func() {
			cancel()
			<-done
		}
}

// beginning returns the id of an event before those of the test.
func (h *harness) beginning() string {
	h.Helper()
	next, stop := h.follow("no such id")
	defer stop()
	e := next()
	equal(h, "kind", e.Kind, agl.EventReset)
	return e.ID
}

func testEvents(h *harness) {
	next, stop := h.follow(h.beginning())
	defer stop()
	want := func(kind agl.EventKind, status string) agl.Event {
		h.Helper()
		e := next()
		if e.Kind != kind || e.Status != status || e.ID == "" {
			h.Fatalf("got event %+v, want %s %s", e, kind, status)
		}
		return e
	}
	r := h.enqueueOne()
	equal(h, "rollout", want(agl.EventRollout, "queuing").RolloutID, r.RolloutID)
	claimed := h.dequeueOne("w", r.RolloutID)
	want(agl.EventRollout, "preparing")
	e := want(agl.EventAttempt, "preparing")
	equal(h, "attempt", e.AttemptID, claimed.Attempt.AttemptID)
	equal(h, "attempt's rollout", e.RolloutID, r.RolloutID)
	equal(h, "worker", want(agl.EventWorker, "busy").WorkerID, "w")
	h.touch(claimed.Attempt)
	want(agl.EventRollout, "running")
	want(agl.EventAttempt, "running")
	h.touch(claimed.Attempt) // no status changes: no event
	h.heartbeat("w", "")
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	want(agl.EventRollout, "succeeded")
	want(agl.EventAttempt, "succeeded")
	want(agl.EventWorker, "idle")
	learned := span(r.RolloutID, claimed.Attempt.AttemptID, "learned", 1000)
	learned.Name = agl.SpanTraining
	h.addSpans(learned)
	equal(h, "what was learned", want(agl.EventTraining, "1").RolloutID, r.RolloutID)
	late := []agl.Span{span(r.RolloutID, claimed.Attempt.AttemptID, "late-1", 0), span(r.RolloutID, claimed.Attempt.AttemptID, "late-2", 0)}
	must(h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: late, IssueSequenceIDs: true}))(h)
	told := want(agl.EventSpans, "2")
	equal(h, "late spans", told.RolloutID+told.AttemptID, r.RolloutID+claimed.Attempt.AttemptID)
	u := must(h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: bundle("m")}))(h)
	equal(h, "resources", want(agl.EventResources, "").ResourcesID, u.ResourcesID)
	h.ok(h.Store.CloseQueue(h.ctx))
	want(agl.EventQueue, "closed")
	h.ok(h.Store.OpenQueue(h.ctx))
	want(agl.EventQueue, "open")
	h.ok(h.Store.DeleteRollout(h.ctx, agl.DeleteRolloutParams{RolloutID: r.RolloutID}))
	equal(h, "rollout", want(agl.EventRollout, "deleted").RolloutID, r.RolloutID)
}

func testEventsSince(h *harness) {
	begin := h.beginning()
	r := h.enqueue(numbered(5)...)
	next, stop := h.follow(begin)
	var all []agl.Event
	for range r {
		all = append(all, next())
	}
	stop()
	for i := range r {
		equal(h, "order", all[i].RolloutID, r[i].RolloutID)
	}
	next, stop = h.follow(all[2].ID)
	defer stop()
	equal(h, "resumed", next(), all[3])
	equal(h, "resumed", next(), all[4])
	h.cancel(r[0].RolloutID)
	equal(h, "live", next().Status, string(agl.RolloutCancelled))
}

func testEventsReset(h *harness) {
	h.enqueueOne()
	next, stop := h.follow("nonsense-1")
	defer stop()
	equal(h, "kind", next().Kind, agl.EventReset)
	r := h.enqueueOne()
	equal(h, "goes on", next().RolloutID, r.RolloutID)
}

func testEventsFromNow(h *harness) {
	old := h.enqueueOne()
	next, stop := h.follow("")
	defer stop()
	// The stream has started once the first of these arrives.
	arrived, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-arrived:
				return
			default:
			}
			if _, err := h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: bundle(strconv.Itoa(i))}); err != nil {
				h.Error(err)
				return
			}
		}
	}()
	e := next()
	close(arrived)
	<-done
	equal(h, "kind", e.Kind, agl.EventResources)
	equal(h, "nothing of before", e.RolloutID != old.RolloutID, true)
}

func testEventsContext(h *harness) {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	var last error
	seen := 0
	for _, err := range h.Store.Events(ctx, agl.EventsParams{Since: "no such id"}) {
		seen++
		last = err
		cancel()
	}
	if seen < 2 || !errors.Is(last, context.Canceled) {
		h.Errorf("the stream ended with %v after %d values, want the context's error", last, seen)
	}
}
