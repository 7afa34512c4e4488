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
	must(h, 0, h.Close())
}

func testClosed(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "w")
	h.touch(r.Attempt)
	u, err := h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: bundle("m")})
	must(h, u, err)
	h.close()
	id, status := r.RolloutID, agl.RolloutFailed
	s, ctx := h.Store, h.ctx
	for name, call := range map[string]func() error{
		"EnqueueRollouts": func() error {
			_, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
			return err
		},
		"DequeueRollouts": func() error { _, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1}); return err },
		"UpdateRollout": func() error {
			_, err := s.UpdateRollout(ctx, agl.UpdateRolloutParams{RolloutID: id, Status: &status})
			return err
		},
		"GetRollout":       func() error { _, err := s.GetRollout(ctx, agl.GetRolloutParams{RolloutID: id}); return err },
		"QueryRollouts":    func() error { _, err := s.QueryRollouts(ctx, agl.QueryRolloutsParams{}); return err },
		"QueryAttempts":    func() error { _, err := s.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: id}); return err },
		"GetLatestAttempt": func() error { _, err := s.GetLatestAttempt(ctx, agl.GetLatestAttemptParams{RolloutID: id}); return err },
		"WaitForRollouts": func() error {
			_, err := s.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{id}})
			return err
		},
		"GetResources": func() error {
			_, err := s.GetResources(ctx, agl.GetResourcesParams{ResourcesID: u.ResourcesID})
			return err
		},
		"GetLatestResources": func() error { _, err := s.GetLatestResources(ctx); return err },
		"QueryResources":     func() error { _, err := s.QueryResources(ctx, agl.QueryResourcesParams{}); return err },
		"UpdateWorker":       func() error { _, err := s.UpdateWorker(ctx, agl.UpdateWorkerParams{WorkerID: "w"}); return err },
		"GetWorker":          func() error { _, err := s.GetWorker(ctx, agl.GetWorkerParams{WorkerID: "w"}); return err },
		"QueryWorkers":       func() error { _, err := s.QueryWorkers(ctx, agl.QueryWorkersParams{}); return err },
		"AddSpans": func() error {
			_, err := s.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{span(id, r.Attempt.AttemptID, "x", 1)}})
			return err
		},
		"QuerySpans": func() error { _, err := s.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: id}); return err },
		"QueryShortSpans": func() error {
			if !s.Capabilities().QueryShortSpans {
				return s.Ready(ctx)
			}
			_, err := s.QueryShortSpans(ctx, agl.QueryShortSpansParams{ShortForm: agl.ShortForm{Attributes: func(string) bool { return true }}})
			return err
		},
		"ReserveSequenceIDs": func() error {
			_, err := s.ReserveSequenceIDs(ctx, agl.ReserveSequenceIDsParams{RolloutID: id})
			return err
		},
		"CloseQueue": func() error { return s.CloseQueue(ctx) },
		"Statistics": func() error { _, err := s.Statistics(ctx); return err },
		"Ready":      func() error { return s.Ready(ctx) },
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
		_, err := h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: longWait})
		ended <- err
	}()
	go func() {
		_, err := h.Store.WaitForRollouts(h.ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{r.RolloutID}})
		ended <- err
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
