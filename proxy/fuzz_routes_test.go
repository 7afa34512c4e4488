package proxy_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// FuzzRoutes sends any body to any route of a proxy whose backends answer with anything: no answer is a fault of the proxy,
// its errors are JSON, and a call that was answered is recorded.
func FuzzRoutes(f *testing.F) {
	store := memorytest.Open(f)
	type reply struct{ kind, body string }
	var next atomic.Pointer[reply] // to the call that is under way
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the reply is the same for a request that breaks off
		w.Header().Set("Content-Type", next.Load().kind)
		_, _ = io.WriteString(w, next.Load().body)
	}))
	f.Cleanup(backend.Close)
	p, err := proxy.New(proxy.Config{
		Models: []proxy.Model{
			{Name: "m", BaseURL: backend.URL + "/v1"},
			{Name: "a", BaseURL: backend.URL + "/v1", API: proxy.APIAnthropic, TextOnly: true},
		},
		Spans: store, Sessions: proxy.Sessions{Store: store, IdleTimeout: time.Hour},
		ForwardPaths: []string{"/rerank"}, Health: proxy.Health{Failures: math.MaxInt32},
	})
	if err != nil {
		f.Fatal(err)
	}
	p.Start(context.WithoutCancel(f.Context()))
	f.Cleanup(func() {
		if err := p.Close(context.WithoutCancel(f.Context())); err != nil {
			f.Error(err)
		}
	})
	calls := map[string]bool{"POST /chat/completions": true, "POST /completions": true, "POST /messages": true, "POST /responses": true}
	routes := p.Routes()
	for i, route := range routes {
		for _, body := range []string{
			"", "{}", "[]", "\xb0", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, `{"model":"a","messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`, `{"model":"a","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"tools":[{"name":"t","input_schema":{}}]}`,
			`{"model":"m","prompt":"hi"}`, `{"model":"a","input":"hi"}`, `{"model":"m","input":[{"type":"function_call","call_id":"c","name":"n","arguments":"{}"}],"stream":true}`,
			`{"value":1}`, `{"event":"x","turn":"1"}`, `{"user":"a","metadata":{"a":1}}`, `{"reward":1,"interaction_id":null}`, `{"task_id":"t","api_key":"sk-0123456789abcdef"}`,
		} {
			replies := []reply{
				{"application/json", `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"yo"},"finish_reason":"stop","token_ids":[1,2]}],"prompt_token_ids":[3],"usage":{"prompt_tokens":1,"completion_tokens":2}}`},
				{"application/json", `{"type":"message","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":{"input_tokens":1}}`},
				{"application/json", `{"id":"\ud800","choices":{"a":1}}`},
				{"application/json", "\xff"},
				{"text/event-stream", "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"token_ids\":[1]}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n"},
				{"text/event-stream", "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[]}}\n\n"},
				{"text/event-stream", "data: [DONE]\n\n"},
			}
			if !calls[route] {
				replies = replies[:1]
			}
			for _, r := range replies {
				f.Add(uint8(i), body, r.kind, r.body)
			}
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, body, kind, answer string) {
		route := routes[int(n)%len(routes)]
		method, path, _ := strings.Cut(route, " ")
		if path == "/admin/pause" {
			return // later calls would wait
		}
		r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
		if err != nil {
			t.Fatal(err)
		}
		attempt := "/rollout/" + r.RolloutID + "/attempt/" + r.Attempt.AttemptID
		if calls[route] {
			path = attempt + path
		}
		path = strings.NewReplacer("/rollout/{id}/attempt/{id}", attempt, "{id}", r.RolloutID, "{name}", "m").Replace(path)
		next.Store(&reply{kind, answer})
		w := httptest.NewRecorder()
		aborted := false
		func() {
			defer func() {
				if e := recover(); e == http.ErrAbortHandler { //nolint:errorlint // the very value
					aborted = true // half of a reply has been sent
				} else if e != nil {
					panic(e)
				}
			}()
			p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		}()
		if err := p.Flush(t.Context(), []string{r.RolloutID}); err != nil {
			t.Fatalf("%s %q: flush: %v", route, body, err)
		}
		spans, err := store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID})
		if err != nil {
			t.Fatal(err)
		}
		got := w.Body.Bytes()
		switch json := jsontext.Value(got); {
		case w.Code == http.StatusInternalServerError:
			t.Errorf("%s %q: %d %s", route, body, w.Code, got)
		case calls[route] && w.Code == http.StatusOK && len(spans.Items) != 3:
			t.Errorf("%s %q, answered with %q: the record has %d spans, want 3", route, body, answer, len(spans.Items))
		case w.Code >= 300 && !aborted && w.Header().Get("Content-Type") == "application/json" &&
			(!utf8.Valid(got) || !json.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))):
			t.Errorf("%s %q: %d, which is not JSON: %q", route, body, w.Code, got)
		}
	})
}
