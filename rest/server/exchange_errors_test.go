package server_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", name, diff)
	}
}

// badRequests are requests that no store sees. Their answers are those of the
// reference, but for the first fault only and for what rest.md marks as ours.
func badRequests() []struct{ method, path, contentType, body string } {
	const post, get, json = "POST", "GET", "application/json"
	return []struct{ method, path, contentType, body string }{
		{post, "/queues/rollouts/enqueue", "", ""},
		{post, "/queues/rollouts/enqueue", json, "null"},
		{post, "/queues/rollouts/enqueue", json, "[]"},
		{post, "/queues/rollouts/enqueue", json, "{}"},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":"x"}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"mode":"train"}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":1},{"input":1,"mode":"best"}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":1,"config":{"max_attempts":0}}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":1,"config":{"retry_condition":["failed","x"]}}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":1,"config":{"max_attempts":1.5}}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":1,"config":{"max_attempts":"x"}}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":1,"config":{"timeout_seconds":"soon"}}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":1,"config":{"timeout_seconds":"inf"}}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":1,"config":3}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[3]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":1,"metadata":[]}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":{"loss":NaN}}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":{"a":[0,-Infinity]}}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":Infinity}]}`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[{"input":{"loss":NaN`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[`},
		{post, "/queues/rollouts/enqueue", json, `{"rollouts":[]} x`},
		{post, "/queues/rollouts/enqueue", json, `hello`},
		{post, "/queues/rollouts/enqueue", "text/plain", `{"rollouts":[]}`},
		{post, "/queues/rollouts/dequeue", json, `{"limit":1.5}`},
		{post, "/queues/rollouts/dequeue", json, `{"limit":"a"}`},
		{post, "/queues/rollouts/dequeue", json, `{"limit":null}`},
		{post, "/queues/rollouts/dequeue", json, `{"limit":1e99}`},
		{post, "/queues/rollouts/dequeue", json, `{"worker_id":3}`},
		{post, "/queues/rollouts/dequeue", json, `{"wait_seconds":61}`},
		{post, "/queues/rollouts/dequeue", json, `[1]`},
		{post, "/rollouts", "", ""},
		{post, "/rollouts", json, `{}`},
		{post, "/rollouts", json, `{"input":1,"worker_id":2}`},
		{get, "/rollouts?sort_by=attempt", "", ""},
		{get, "/rollouts?sort_by=", "", ""},
		{get, "/rollouts?sort_order=up", "", ""},
		{get, "/rollouts?label=run", "", ""},
		{get, "/rollouts?after=ro-none", "", ""},
		{get, "/rollouts/search?after=ro-none", "", ""},
		{get, "/rollouts/search?outcome_in=lost", "", ""},
		{get, "/rollouts/search?attribute=name", "", ""},
		{get, "/rollouts/search?limit=1001", "", ""},
		{get, "/rollouts/search?limit=-1", "", ""},
		{get, "/rollouts?label=run=a&label==a", "", ""},
		{get, "/rollouts?mode_in=practice", "", ""},
		{get, "/rollouts?reward_min=high", "", ""},
		{get, "/rollouts?reward_max=NaN", "", ""},
		{get, "/rollouts?filter_logic=xor", "", ""},
		{get, "/rollouts?limit=0", "", ""},
		{get, "/rollouts?limit=x", "", ""},
		{get, "/rollouts?offset=1.5", "", ""},
		{get, "/rollouts?offset=-1", "", ""},
		{get, "/rollouts?status_in=running,failed", "", ""},
		{get, "/rollouts?status_in=running&status_in=best", "", ""},
		{post, "/rollouts/search", "", ""},
		{post, "/rollouts/search", json, "null"},
		{post, "/rollouts/search", json, `{"status_in":["x"]}`},
		{post, "/rollouts/search", json, `{"status_in":"running"}`},
		{post, "/rollouts/search", json, `{"limit":"q"}`},
		{post, "/rollouts/x", "", ""},
		{post, "/rollouts/x", json, "null"},
		{post, "/rollouts/x", json, `{"status":null}`},
		{post, "/rollouts/x", json, `{"config":null}`},
		{post, "/rollouts/x", json, `{"status":"done"}`},
		{post, "/rollouts/x", json, `{"resources_id":4}`},
		{post, "/rollouts/x", json, `{"metadata":"z"}`},
		{get, "/rollouts/x/attempts?sort_by=x", "", ""},
		{post, "/rollouts/x/attempts/search", "", ""},
		{post, "/rollouts/x/attempts/latest", json, `{"status":null}`},
		{post, "/rollouts/x/attempts/latest", json, `{"worker_id":null}`},
		{post, "/rollouts/x/attempts/a", json, `{"last_heartbeat_time":null}`},
		{post, "/rollouts/x/attempts/a", json, `{"last_heartbeat_time":"x"}`},
		{post, "/rollouts/x/attempts/a", json, `{"last_heartbeat_time":"inf"}`},
		{post, "/rollouts/x/attempts/a", json, `{"metadata":null}`},
		{post, "/workers/w", json, `{"heartbeat_stats":null}`},
		{post, "/workers/w", json, `{"heartbeat_stats":3}`},
		{get, "/workers?sort_by=x", "", ""},
		{get, "/workers?status_in=lazy", "", ""},
		{post, "/resources", "", ""},
		{post, "/resources", json, `{"a":{"template":"x"}}`},
		{post, "/resources", json, `{"a":{"resource_type":"prompt_template","template":"x","engine":"go"}}`},
		{post, "/resources", json, `{"a":{"resource_type":"llm","model":"m"}}`},
		{post, "/resources", json, `{"a":"x"}`},
		{get, "/resources?sort_by=x", "", ""},
		{post, "/spans", json, `{}`},
		{post, "/spans", json, strings.Replace(spanDocument, `"sequence_id":1`, `"sequence_id":1.5`, 1)},
		{post, "/spans", json, strings.Replace(spanDocument, `"score":1.0`, `"score":{"a":1}`, 1)},
		{post, "/spans", json, strings.Replace(spanDocument, `"score":1.0`, `"score":NaN`, 1)},
		{post, "/spans", json, strings.Replace(spanDocument, `"OK"`, `"FINE"`, 1)},
		{post, "/spans/batch", json, `{}`},
		{post, "/spans/batch", json, `{"spans":[{}]}`},
		{get, "/spans", "", ""},
		{get, "/spans?rollout_id=x&sort_by=q", "", ""},
		{post, "/spans/search", json, `{}`},
		{post, "/spans/next", json, `{}`},
		{post, "/spans/next", json, `{"rollout_id":"x","attempt_id":3}`},
		{post, "/spans/next", json, `{"rollout_id":"x","attempt_id":"y","count":0}`},
		{post, "/waits/rollouts", json, `{}`},
		{post, "/waits/rollouts", json, `{"rollout_ids":[3]}`},
		{post, "/waits/rollouts", json, `{"rollout_ids":[],"timeout":"x"}`},
		{get, "/nope", "", ""},
		{get, "/queues/rollouts/dequeue", "", ""},
		{"PUT", "/rollouts", json, "{}"},
		{"PATCH", "/spans", json, "{}"},
		{"DELETE", "/workers/w", "", ""},
		{post, "/health", json, "{}"},
	}
}

const spanDocument = `{"rollout_id":"ro-1","attempt_id":"at-1","sequence_id":1,"trace_id":"00","span_id":"b7ad6b7169203331","parent_id":null,"name":"call","status":{"status_code":"OK","description":null},"attributes":{"score":1.0},"events":[],"links":[],"start_time":1.5,"end_time":null,"context":null,"parent":null,"resource":{"attributes":{},"schema_url":""}}`

func TestBadRequests(t *testing.T) {
	t.Parallel()
	api := newServer(t, server.Config{Store: memorytest.Open(t)})
	var out strings.Builder
	for _, r := range badRequests() {
		w := ask(t, api, r.method, "/v1/agl"+r.path, r.body, "Content-Type", r.contentType)
		fmt.Fprintf(&out, "%s %s %s\n%s\n%d %s\n\n", r.method, r.path, r.contentType, r.body, w.Code, w.Body)
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%s %s: content type %q", r.method, r.path, got)
		}
	}
	golden(t, "bad_requests.golden", out.String())
}

// TestInvalidUTF8 checks that an answer which quotes a body is valid JSON, whatever the body is.
func TestInvalidUTF8(t *testing.T) {
	t.Parallel()
	api := newServer(t, server.Config{Store: memorytest.Open(t)})
	for body, want := range map[string]string{
		"\xb0":                              `["body"] "\ufffd"`,
		"{\"rollouts\":[\xb0]}":             `["body","rollouts",0] "\ufffd"`,
		"{\"rollouts\":[\xb0":               `["body","rollouts","0"] null`,
		"{\"rollouts\":[{\"k\":\"\xff\"}]}": `["body","rollouts",0,"k"] "\ufffd"`,
		"{\"\xff\":1}":                      `["body"] {"\ufffd":1}`,
	} {
		w := ask(t, api, "POST", "/v1/agl/queues/rollouts/enqueue", body, "Content-Type", "application/json")
		var doc struct {
			Detail []struct {
				Loc   jsontext.Value `json:"loc"`
				Input jsontext.Value `json:"input"`
			} `json:"detail"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != http.StatusUnprocessableEntity {
			t.Errorf("%q: %d %q: %v", body, w.Code, w.Body, err)
		} else if got := fmt.Sprintf("%s %s", doc.Detail[0].Loc, doc.Detail[0].Input); got != strings.ReplaceAll(want, `\ufffd`, "\uFFFD") {
			t.Errorf("%q: got %s, want %s", body, got, want)
		}
	}
}

// A number that is wrong in the same way is refused in the same words, whether the
// request's envelope or a noun holds it.
func TestNumbersAreRefusedAlike(t *testing.T) {
	t.Parallel()
	api := newServer(t, server.Config{Store: memorytest.Open(t)})
	for _, number := range []string{"1.5", `"x"`, `"1.5"`, "1e99", "true"} {
		first := ""
		for path, body := range map[string]string{
			"/queues/rollouts/dequeue": `{"limit":%s}`,
			"/queues/rollouts/enqueue": `{"rollouts":[{"input":1,"config":{"max_attempts":%s}}]}`,
			"/rollouts":                `{"input":1,"config":{"max_attempts":%s}}`,
			"/spans":                   strings.Replace(spanDocument, `"sequence_id":1`, `"sequence_id":%s`, 1),
			"/spans/next":              `{"rollout_id":"x","attempt_id":"y","count":%s}`,
		} {
			var doc struct {
				Detail []struct {
					Type    string         `json:"type"`
					Message string         `json:"msg"`
					Input   jsontext.Value `json:"input"`
				} `json:"detail"`
			}
			w := ask(t, api, "POST", "/v1/agl"+path, fmt.Sprintf(body, number))
			decode(t, w.Body.Bytes(), &doc)
			if len(doc.Detail) != 1 || string(doc.Detail[0].Input) != number {
				t.Fatalf("%s with %s: %d %s", path, number, w.Code, w.Body)
			}
			said := doc.Detail[0].Type + ": " + doc.Detail[0].Message
			if first == "" {
				first = said
			}
			if said != first {
				t.Errorf("%s with %s says %q, another request %q", path, number, said, first)
			}
		}
	}
}

func TestStoreErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err       error
		status    int
		detail    string
		errorType string
	}{
		{agl.Errorf(agl.CodeNotFound, "Rollout x not found"), 400, "Rollout x not found", "ValueError"},
		{agl.Errorf(agl.CodeInvalid, "no"), 400, "no", "ValueError"},
		{agl.Errorf(agl.CodeIllegalState, "not now"), 400, "not now", "ValueError"},
		{agl.Errorf(agl.CodeEvicted, "Spans for rollout x have been evicted"), 400, "Spans for rollout x have been evicted", "RuntimeError"},
		{agl.Errorf(agl.CodeExhausted, "full"), 507, "full", "MemoryError"},
		{agl.Errorf(agl.CodeUnavailable, "away"), 503, "away", "ConnectionError"},
		{agl.Errorf(agl.CodeUnimplemented, "no such thing"), 501, "no such thing", "NotImplementedError"},
		{fmt.Errorf("wrapped: %w", agl.Errorf(agl.CodeConflict, "taken")), 422, "wrapped: taken", "ValueError"},
		{errors.New("secret path /etc/x"), 500, "Internal server error", "InternalError"},
	} {
		t.Run(string(agl.ErrorCode(tc.err)), func(t *testing.T) {
			t.Parallel()
			store := &stubStore{addSpan: func(context.Context, agl.AddSpansParams) (agl.AddSpansResult, error) {
				return agl.AddSpansResult{}, tc.err
			}}
			api := newServer(t, server.Config{Store: store})
			w := ask(t, api, "POST", "/v1/agl/spans", spanDocument)
			var doc struct {
				Detail    string `json:"detail"`
				Type      string `json:"error_type"`
				Code      string `json:"code"`
				RequestID string `json:"request_id"`
			}
			decode(t, w.Body.Bytes(), &doc)
			if w.Code != tc.status || doc.Detail != tc.detail || doc.Type != tc.errorType || doc.Code != string(agl.ErrorCode(tc.err)) {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			if fault := tc.status == 500; fault != (doc.RequestID != "") {
				t.Errorf("request id is %q", doc.RequestID)
			}
			if strings.Contains(w.Body.String(), "secret") {
				t.Errorf("the answer shows internals: %s", w.Body)
			}
			if after := w.Header().Get("Retry-After"); (after != "") != (tc.status == 503) {
				t.Errorf("Retry-After is %q", after)
			}
		})
	}
}

// A failure that many requests have in common, such as a full disk, is logged now
// and then, not once for each request.
func TestRefusalsAreThrottled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &stubStore{addSpan: func(context.Context, agl.AddSpansParams) (agl.AddSpansResult, error) {
			return agl.AddSpansResult{}, agl.Errorf(agl.CodeExhausted, "no space is left")
		}}
		api := newServer(t, server.Config{Store: store, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		send := func(n int) {
			t.Helper()
			for range n {
				if w := ask(t, api, "POST", "/v1/agl/spans", spanDocument); w.Code != http.StatusInsufficientStorage {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
			}
		}
		send(100)
		time.Sleep(time.Minute)
		send(1)
		text := log.String()
		if strings.Count(text, "\n") != 2 || !strings.Contains(text, `error="no space is left" not_logged=0`) || !strings.Contains(text, "not_logged=99") {
			t.Errorf("log: %s", text)
		}
	})
}

// TestTruncatedRequests sends every beginning of the bad requests.
func TestTruncatedRequests(t *testing.T) {
	t.Parallel()
	api := newServer(t, server.Config{Store: memorytest.Open(t)})
	for _, r := range badRequests() {
		if r.contentType == "" || r.body == "" {
			continue
		}
		for n := 1; n < min(len(r.body), 200); n++ {
			// A panic fails the test, too.
			if w := ask(t, api, r.method, "/v1/agl"+r.path, r.body[:n], "Content-Type", r.contentType); w.Code >= 500 {
				t.Errorf("%s %s %s: %d %s, which is no fault of the server", r.method, r.path, r.body[:n], w.Code, w.Body)
			}
		}
	}
}
