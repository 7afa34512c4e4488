package storetest

import (
	"github.com/agl-go/agl"
)

func closeTests(a *area) {
	a.test("every later call is refused", testClosed)
	a.test("blocked calls end", testCloseBlocked)
}

func (h *harness) close() {
	h.Helper()
	if h.Close == nil {
		h.Skip("the store cannot be closed by a test")
	}
	h.ok(h.Close())
}

func testClosed(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "w")
	h.touch(r.Attempt)
	u := must(h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: bundle("m")}))(h)
	h.close()
	id, status := r.RolloutID, agl.RolloutFailed
	s, ctx := h.Store, h.ctx
	for name, call := range map[string]func() error{
		"EnqueueRollouts": func() error { return errorOf(s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})) },
		"DequeueRollouts": func() error { return errorOf(s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1})) },
		"UpdateRollout": func() error {
			return errorOf(s.UpdateRollout(ctx, agl.UpdateRolloutParams{RolloutID: id, Status: &status}))
		},
		"GetRollout":       func() error { return errorOf(s.GetRollout(ctx, agl.GetRolloutParams{RolloutID: id})) },
		"QueryRollouts":    func() error { return errorOf(s.QueryRollouts(ctx, agl.QueryRolloutsParams{})) },
		"QueryAttempts":    func() error { return errorOf(s.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: id})) },
		"GetLatestAttempt": func() error { return errorOf(s.GetLatestAttempt(ctx, agl.GetLatestAttemptParams{RolloutID: id})) },
		"WaitForRollouts": func() error {
			return errorOf(s.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{id}}))
		},
		"GetResources":       func() error { return errorOf(s.GetResources(ctx, agl.GetResourcesParams{ResourcesID: u.ResourcesID})) },
		"GetLatestResources": func() error { return errorOf(s.GetLatestResources(ctx)) },
		"QueryResources":     func() error { return errorOf(s.QueryResources(ctx, agl.QueryResourcesParams{})) },
		"UpdateWorker":       func() error { return errorOf(s.UpdateWorker(ctx, agl.UpdateWorkerParams{WorkerID: "w"})) },
		"GetWorker":          func() error { return errorOf(s.GetWorker(ctx, agl.GetWorkerParams{WorkerID: "w"})) },
		"QueryWorkers":       func() error { return errorOf(s.QueryWorkers(ctx, agl.QueryWorkersParams{})) },
		"AddSpans": func() error {
			return errorOf(s.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{span(id, r.Attempt.AttemptID, "x", 1)}}))
		},
		"QuerySpans": func() error { return errorOf(s.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: id})) },
		"QueryShortSpans": func() error {
			if !s.Capabilities().QueryShortSpans {
				return s.Ready(ctx)
			}
			return errorOf(s.QueryShortSpans(ctx, agl.QueryShortSpansParams{QuerySpansParams: agl.QuerySpansParams{AttributeNames: []string{"*"}}}))
		},
		"ReserveSequenceIDs": func() error { return errorOf(s.ReserveSequenceIDs(ctx, agl.ReserveSequenceIDsParams{RolloutID: id})) },
		"CloseQueue":         func() error { return s.CloseQueue(ctx) },
		"Statistics":         func() error { return errorOf(s.Statistics(ctx)) },
		"Ready":              func() error { return s.Ready(ctx) },
		"Events": func() (last error) {
			for _, err := range s.Events(ctx, agl.EventsParams{}) {
				last = err
			}
			return last
		},
	} {
		if code := agl.ErrorCode(call()); code != agl.CodeUnavailable {
			h.Errorf("%s: got code %q, want %q", name, code, agl.CodeUnavailable)
		}
	}
}

func testCloseBlocked(h *harness) {
	if h.Close == nil {
		h.Skip("the store cannot be closed by a test")
	}
	r := h.enqueueOne()
	h.dequeueOne("", r.RolloutID)
	ended := make(chan error)
	streaming := make(chan struct{})
	go func() {
		ended <- errorOf(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: longWait}))
	}()
	go func() {
		ended <- errorOf(h.Store.WaitForRollouts(h.ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{r.RolloutID}}))
	}()
	go func() {
		var last error
		for e, err := range h.Store.Events(h.ctx, agl.EventsParams{Since: "no such id"}) {
			if last = err; e.Kind == agl.EventReset {
				close(streaming)
			}
		}
		ended <- last
	}()
	<-streaming
	h.close()
	for range 3 {
		if err := <-ended; agl.ErrorCode(err) != agl.CodeUnavailable {
			h.Errorf("a blocked call ended with %v, want unavailable", err)
		}
	}
}
