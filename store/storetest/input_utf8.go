package storetest

import (
	"errors"
	"path"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

func utf8Tests(a *area) {
	a.test("invalid UTF-8 is refused in every string", testInvalidUTF8)
}

// testInvalidUTF8 passes invalid UTF-8 in every string that is stored. The error must name
// the field, and nothing may be stored.
func testInvalidUTF8(h *harness) {
	const bad = "a\xffb"
	doc := jsontext.Value(`{"k":["` + bad + `"]}`)
	r := h.start(agl.EnqueueRollout{Input: jsontext.Value(`1`)}, "w")
	spanWith := func(change func(s *agl.Span)) error {
		s := span(r.RolloutID, r.Attempt.AttemptID, "s", 1)
		change(&s)
		return errorOf(h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: []agl.Span{s}}))
	}
	enqueue := func(e agl.EnqueueRollout) error {
		return errorOf(h.Store.EnqueueRollouts(h.ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{e}}))
	}
	update := func(p agl.UpdateRolloutParams) error {
		p.RolloutID = r.RolloutID
		return errorOf(h.Store.UpdateRollout(h.ctx, p))
	}
	resource := func(resources agl.Resources) error {
		return errorOf(h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: resources}))
	}
	attempt := func(p agl.UpdateAttemptParams) error {
		p.RolloutID, p.AttemptID = r.RolloutID, r.Attempt.AttemptID
		return errorOf(h.Store.UpdateAttempt(h.ctx, p))
	}
	documents := map[string]bool{
		"input": true, "metadata": true, "heartbeat_stats": true, "attributes": true, "resources/m/sampling_parameters": true,
	}
	badID := agl.Some(bad)
	worker := bad
	_, local := h.Store.(agl.DocumentStore) // a client replaces the invalid bytes of Go strings before it sends them
	for _, tc := range []struct {
		field string
		call  func() error
	}{
		{"input", func() error { return enqueue(agl.EnqueueRollout{Input: doc}) }},
		{"metadata", func() error { return enqueue(agl.EnqueueRollout{Input: jsontext.Value(`1`), Metadata: doc}) }},
		{"resources_id", func() error { return enqueue(agl.EnqueueRollout{Input: jsontext.Value(`1`), ResourcesID: badID}) }},
		{"input", func() error { return update(agl.UpdateRolloutParams{Input: doc}) }},
		{"metadata", func() error { return update(agl.UpdateRolloutParams{Metadata: doc}) }},
		{"resources_id", func() error { return update(agl.UpdateRolloutParams{ResourcesID: &badID}) }},
		{"metadata", func() error { return attempt(agl.UpdateAttemptParams{Metadata: doc}) }},
		{"worker_id", func() error { return attempt(agl.UpdateAttemptParams{WorkerID: &worker}) }},
		{"heartbeat_stats", func() error {
			return errorOf(h.Store.UpdateWorker(h.ctx, agl.UpdateWorkerParams{WorkerID: "w", HeartbeatStats: doc}))
		}},
		{"worker_id", func() error {
			return errorOf(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: badID}))
		}},
		{"span_id", func() error { return spanWith(func(s *agl.Span) { s.SpanID = bad }) }},
		{"name", func() error { return spanWith(func(s *agl.Span) { s.Name = bad }) }},
		{"trace_id", func() error { return spanWith(func(s *agl.Span) { s.TraceID = bad }) }},
		{"events/0/name", func() error { return spanWith(func(s *agl.Span) { s.Events = []agl.SpanEvent{{Name: bad}} }) }},
		{"status/description", func() error { return spanWith(func(s *agl.Span) { s.Status.Description = badID }) }},
		{"attributes", func() error { return spanWith(func(s *agl.Span) { s.Attributes = agl.Attributes(doc) }) }},
		{"resources/p/template", func() error {
			return resource(agl.Resources{{Name: "p", Resource: agl.PromptTemplate{Template: bad, Engine: agl.PromptJinja}}})
		}},
		{"resources/m/sampling_parameters", func() error {
			return resource(agl.Resources{{Name: "m", Resource: agl.LLM{Endpoint: "e", Model: "m", SamplingParameters: doc}}})
		}},
	} {
		if !local && !documents[tc.field] {
			continue
		}
		err := tc.call()
		if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), path.Base(tc.field)) || !strings.Contains(err.Error(), "UTF-8") {
			h.Errorf("%s: got error %v, want ErrInvalid that names it and UTF-8", tc.field, err)
		}
	}
	stats := must(h.Store.Statistics(h.ctx))(h)
	equal(h, "spans", stats.TotalSpans, 0)
	equal(h, "rollouts", stats.TotalRollouts, 1)
	equal(h, "resources", stats.TotalResources, 0)
	equal(h, "workers", stats.TotalWorkers, 1)
}
