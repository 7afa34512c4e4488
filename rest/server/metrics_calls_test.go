package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// Calls are counted as their spans arrive; a span that is sent again counts once, and what is no call does not.
func TestCallCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics, err := server.NewMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		engine := memorytest.OpenWith(t, store.Config{Observer: metrics})
		api := newServer(t, server.Config{Store: engine, Metrics: metrics})
		r, err := engine.StartRollout(t.Context(), agl.StartRolloutParams{})
		if err != nil {
			t.Fatal(err)
		}
		add := func(id, name, attributes string) {
			t.Helper()
			if _, err := engine.AddSpans(t.Context(), agl.AddSpansParams{IssueSequenceIDs: true, Spans: []agl.Span{{
				RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, TraceID: "ab", SpanID: id, Name: name, Attributes: agl.Attributes(attributes),
			}}}); err != nil {
				t.Fatal(err)
			}
		}
		call := `{"gen_ai.completion.0.content":"\"gen_ai.usage.completion_tokens\":77","gen_ai.request.model":"m","agentlightning.model.version":"m@3","gen_ai.usage.prompt_tokens":30,"gen_ai.usage.completion_tokens":5}`
		add("a", "litellm_request", call)
		add("a", "litellm_request", call)
		add("b", "litellm_request", `{"gen_ai.request.model":"m","gen_ai.usage.input_tokens":10}`)
		add("c", "tool", call)
		check := func(want string) {
			t.Helper()
			if w := ask(t, api, "GET", "/v1/agl/statistics/calls", ""); w.Code != 200 || w.Body.String() != want {
				t.Errorf("got %d %s, want %s", w.Code, w.Body, want)
			}
		}
		versions := `,"versions":[{"version":"m","calls":1,"last_time":946684800.0},{"version":"m@3","calls":1,"last_time":946684800.0}]}`
		totals := `{"calls":2,"prompt_tokens":40,"reply_tokens":5,"per_second":`
		check(totals + `{"calls":2.0,"prompt_tokens":40.0,"reply_tokens":5.0}` + versions) // the server is in its first second
		time.Sleep(3 * time.Second)
		check(totals + `{"calls":0.5,"prompt_tokens":10.0,"reply_tokens":1.25}` + versions)
		time.Sleep(6 * time.Second)
		check(totals + `{"calls":0.2,"prompt_tokens":4.0,"reply_tokens":0.5}` + versions)
		time.Sleep(time.Second)
		check(totals + `{"calls":0.0,"prompt_tokens":0.0,"reply_tokens":0.0}` + versions)
		time.Sleep(time.Hour)
		check(totals + `{"calls":0.0,"prompt_tokens":0.0,"reply_tokens":0.0},"versions":[]}`)
	})
}
