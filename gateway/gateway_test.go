package gateway_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/gateway"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// client calls a gateway without a network.
type client struct {
	testing.TB

	handler http.Handler
}

func open(tb testing.TB, config gateway.Config) *client {
	tb.Helper()
	if config.Store == nil {
		config.Store = memorytest.Open(tb)
	}
	g, err := gateway.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	if err := g.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(g.Close)
	return &client{tb, g}
}

func (c *client) send(method, path, body string) *httptest.ResponseRecorder {
	c.Helper()
	r := httptest.NewRequestWithContext(c.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return w
}

// The trainer of a later version asks for many statuses at once.
func TestStatuses(t *testing.T) {
	t.Parallel()
	c := open(t, gateway.Config{})
	c.create("a", "b", "c")
	c.finish("b")
	c.must("DELETE", "/api/rollouts/c", "")
	c.create("c") // another rollout under the same id
	c.patch("c", "running")
	status := func(state string, version int) string {
		return fmt.Sprintf(`{"state":%q,"k8s_job_name":null,"last_attempt_id":null,"error_message":null,"version":%d,"created_at":TIME,"updated_at":TIME}`, state, version)
	}
	const path = "/api/rollouts/status"
	c.want("POST", path, `["c","a","b","a"]`, 200, `{"c":`+status("running", 2)+`,"a":`+status("queuing", 1)+`,"b":`+status("succeeded", 3)+`}`)
	c.want("POST", path, `[]`, 200, `{}`)
	c.create(`"\`)
	c.want("POST", path, `["\"\\"]`, 200, `{"\"\\":`+status("queuing", 1)+`}`)
	c.want("POST", path, `["a","no"]`, 404, `{"detail":"Rollout not found: no"}`)
	c.want("POST", path, `["a",1]`, 422, `{"detail":[{"type":"string_type","loc":["body",1],"msg":"Input should be a valid string","input":1}]}`)
	c.must("POST", path, `["a"`+strings.Repeat(`,"a"`, 255)+`]`)
	if w := c.send("POST", path, `["a"`+strings.Repeat(`,"a"`, 256)+`]`); w.Code != 422 {
		t.Errorf("257 ids: got %d", w.Code)
	}
}

// times and generated ids differ from run to run.
var (
	times = regexp.MustCompile(`("(?:timestamp|[a-z]+_at)": ?)[0-9]{10}(?:\.[0-9]+)?\b`)
	ids   = regexp.MustCompile(`"[0-9a-f]{32}"`)
)

func settled(body string) string {
	return ids.ReplaceAllString(times.ReplaceAllString(body, "${1}TIME"), `"ID"`)
}

func (c *client) want(method, path, body string, status int, want string) {
	c.Helper()
	w := c.send(method, path, body)
	if got := settled(w.Body.String()); w.Code != status || got != want {
		c.Errorf("%s %s %s:\n got %d %s\nwant %d %s", method, path, body, w.Code, got, status, want)
	}
}

// must sends a request that succeeds and returns the answer.
func (c *client) must(method, path, body string) jsontext.Value {
	c.Helper()
	w := c.send(method, path, body)
	if w.Code >= http.StatusBadRequest {
		c.Fatalf("%s %s %s: got %d %s", method, path, body, w.Code, w.Body)
	}
	return w.Body.Bytes()
}

func (c *client) create(ids ...string) {
	c.Helper()
	for _, id := range ids {
		c.must("POST", "/api/rollouts", fmt.Sprintf(`[{"input":{"data_id":%q},"rollout_id":%q}]`, "d-"+id, id))
	}
}

func (c *client) patch(id, state string) int {
	c.Helper()
	return c.send("PATCH", "/api/rollouts/"+id, fmt.Sprintf(`{"status":{"state":%q}}`, state)).Code
}

func (c *client) finish(ids ...string) {
	c.Helper()
	for _, id := range ids {
		if a, b := c.patch(id, "running"), c.patch(id, "succeeded"); a != 200 || b != 200 {
			c.Fatalf("%s: got %d and %d", id, a, b)
		}
	}
}

func TestExchanges(t *testing.T) {
	t.Parallel()
	c := open(t, gateway.Config{})
	const head = `{"rollout_id":"r","input":{"data_id":"a","n":1.0},"is_train":true,"config":{"timeout_seconds":3600,"local":null,"k8s":null},` +
		`"metadata":{"batch_idx":null,"sample_idx_in_batch":null},"status":{"state":`
	status := func(state, job, attempt, message string, version int) string {
		return fmt.Sprintf(`%s%q,"k8s_job_name":%s,"last_attempt_id":%s,"error_message":%s,"version":%d,"created_at":TIME,"updated_at":TIME}}`,
			head, state, job, attempt, message, version)
	}
	const enum = `"ctx":{"expected":"'queuing', 'running', 'succeeded' or 'failed'"}}`
	for _, x := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/healthz", "", 200, `{"status":"ok"}`},
		{"POST", "/api/rollouts", `[{"input":{"data_id":"a","n":1.0},"rollout_id":"r"}]`, 201, "[" + status("queuing", "null", "null", "null", 1) + "]"},
		{"POST", "/api/rollouts", `[{"input":2,"rollout_id":"r","is_train":false}]`, 201, "[" + status("queuing", "null", "null", "null", 1) + "]"},
		{"POST", "/api/rollouts", `[{"input":2},{}]`, 422, `{"detail":[{"type":"missing","loc":["body",1,"input"],"msg":"Field required","input":{}}]}`},
		{"GET", "/api/rollouts?state_in=queuing&state_in=running", "", 200, "[" + status("queuing", "null", "null", "null", 1) + "]"},
		{"GET", "/api/rollouts?state_in=running", "", 200, "[]"},
		{"GET", "/api/rollouts?state_in=cancelled", "", 422, `{"detail":[{"type":"enum","loc":["query","state_in",0],"msg":"Input should be 'queuing', 'running', 'succeeded' or 'failed'","input":"cancelled",` + enum + `]}`},
		{"GET", "/api/rollouts/r", "", 200, `{"rollout":` + status("queuing", "null", "null", "null", 1) + `,"attempts":[]}`},
		{"PATCH", "/api/rollouts/r", `{"status":{"state":"succeeded"}}`, 409, `{"detail":"Rollout r: cannot transition queuing -> succeeded"}`},
		{"PATCH", "/api/rollouts/r", `{"status":{}}`, 200, status("queuing", "null", "null", "null", 1)},
		{"PATCH", "/api/rollouts/r", `{"status":{"k8s_job_name":"j","error_message":"m"}}`, 200, status("queuing", `"j"`, "null", `"m"`, 2)},
		{"PATCH", "/api/rollouts/r", `{"status":{"error_message":null}}`, 200, status("queuing", `"j"`, "null", "null", 3)},
		{"PATCH", "/api/rollouts/r", `{"status":{"state":"running","last_attempt_id":"0"}}`, 200, status("running", `"j"`, `"0"`, "null", 4)},
		{"PATCH", "/api/rollouts/r", `{"status":{"state":"running"}}`, 409, `{"detail":"Rollout r: cannot transition running -> running"}`},
		{"PATCH", "/api/rollouts/r", `{"status":{"cancel_requested":true}}`, 422, `{"detail":[{"type":"extra_forbidden","loc":["body","status","cancel_requested"],"msg":"Extra inputs are not permitted","input":true}]}`},
		{"PATCH", "/api/rollouts/r", `{"status":{"state":"cancelled"}}`, 422, `{"detail":[{"type":"enum","loc":["body","status","state"],"msg":"Input should be 'queuing', 'running', 'succeeded' or 'failed'","input":"cancelled",` + enum + `]}`},
		{"POST", "/api/rollouts/r/attempt/0/events", `{"event_type":"reward","data":{"value":1.0}}`, 200, `{"event_type":"reward","rollout_id":"r","attempt_id":"0","timestamp":TIME,"data":{"value":1.0}}`},
		{"POST", "/api/rollouts/r/attempt/x/events", `{"event_type":"note"}`, 200, `{"event_type":"note","rollout_id":"r","attempt_id":"x","timestamp":TIME,"data":{}}`},
		{"GET", "/api/rollouts/r/events", "", 200, `[{"event_type":"reward","rollout_id":"r","attempt_id":"0","timestamp":TIME,"data":{"value":1.0}}]`},
		{"GET", "/api/rollouts/r/events?event_type=note", "", 200, `[]`},
		{"POST", "/api/rollouts/no/attempt/0/events", `{"event_type":"reward"}`, 404, `{"detail":"Rollout not found: no"}`},
		{"GET", "/api/rollouts/r", "", 200, `{"rollout":` + status("running", `"j"`, `"0"`, "null", 4) + `,"attempts":["0","x"]}`},
		{"PATCH", "/api/rollouts/r", `{"status":{"state":"failed","error_message":"boom"}}`, 200, status("failed", `"j"`, `"0"`, `"boom"`, 5)},
		{"PATCH", "/api/rollouts/r", `{"status":{"last_attempt_id":"x"}}`, 200, status("failed", `"j"`, `"x"`, `"boom"`, 6)},
		{"GET", "/api/rollouts/r/events", "", 200, `[{"event_type":"note","rollout_id":"r","attempt_id":"x","timestamp":TIME,"data":{}}]`},
		{"GET", "/api/rollouts/terminal", "", 200, `{"items":[{"rollout_id":"r","state":"failed","data_id":"a","is_train":true}],"next_after":1,"total_terminal":1}`},
		{"GET", "/api/rollouts/terminal?after=3", "", 200, `{"items":[],"next_after":3,"total_terminal":1}`},
		{"DELETE", "/api/rollouts/r", "", 204, ""},
		{"DELETE", "/api/rollouts/r", "", 204, ""},
		{"GET", "/api/rollouts/r", "", 404, `{"detail":"Rollout not found: r"}`},
		{"GET", "/api/rollouts/terminal", "", 200, `{"items":[],"next_after":1,"total_terminal":1}`},
		{"POST", "/api/models", `[{"model":"m","endpoint":"http://e","version":"3"}]`, 201, `[{"model":"m","endpoint":"http://e","version":3}]`},
		{"DELETE", "/api/models", "", 200, `{"status":"ok"}`},
		{"POST", "/proxy/pause", `{"retry_after_seconds":9,"reason":"scale-down"}`, 200, `{"paused":true,"retry_after_seconds":9,"reason":"scale-down","inflight":0}`},
		{"GET", "/proxy/state", "", 200, `{"paused":true,"retry_after_seconds":9,"reason":"scale-down","inflight":0}`},
		{"POST", "/proxy/resume", "", 200, `{"paused":false,"retry_after_seconds":9,"reason":null,"inflight":0}`},
		{"POST", "/proxy/pause", "", 422, `{"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]}`},
		{"GET", "/nope", "", 404, `{"detail":"Not Found"}`},
		{"POST", "/api/rollouts", `[{"input":1,"rollout_id":".."}]`, 422, `{"detail":[{"type":"value_error","loc":["body",0,"rollout_id"],"msg":"A rollout with this id could not be addressed by a path","input":".."}]}`},
		{"POST", "/api/rollouts", "[{\"input\":\"\xff\"}]", 422, `{"detail":[{"type":"json_invalid","loc":["body",0],"msg":"JSON decode error","input":{},"ctx":{"error":"not a JSON document in UTF-8"}}]}`},
		{"POST", "/api/rollouts", "\ufeff[]", 201, "[]"},
		{"POST", "/api/rollouts", `[{"input":{"data_id":"a","n":1.0},"rollout_id":"r"}]`, 201, "[" + status("queuing", "null", "null", "null", 1) + "]"},
		{"POST", "/api/rollouts", `[{"input":1,"rollout_id":"names","metadata":{"a\":1,\"agl.gateway\":{\"state\":\"failed\"},\"b":"\"","\u0000é\\":{}}}]`, 201,
			`[{"rollout_id":"names","input":1,"is_train":true,"config":{"timeout_seconds":3600,"local":null,"k8s":null},"metadata":{"batch_idx":null,"sample_idx_in_batch":null,"a\":1,\"agl.gateway\":{\"state\":\"failed\"},\"b":"\"","\u0000é\\":{}},` +
				`"status":{"state":"queuing","k8s_job_name":null,"last_attempt_id":null,"error_message":null,"version":1,"created_at":TIME,"updated_at":TIME}}]`},
		{"POST", "/api/rollouts/r/attempt/%FF/events", `{"event_type":"note"}`, 200, `{"event_type":"note","rollout_id":"r","attempt_id":"` + "\ufffd" + `","timestamp":TIME,"data":{}}`},
	} {
		c.want(x.method, x.path, x.body, x.status, x.want)
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	c := open(t, gateway.Config{Key: "secret"})
	for header, status := range map[string]int{"": 401, "Authorization: Bearer secret": 200, "Authorization: Bearer secret2": 401, "Authorization: secret": 401, "X-Api-Key: secret": 200, "X-Api-Key: ": 401} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/rollouts/terminal", http.NoBody)
		if name, value, ok := strings.Cut(header, ": "); ok {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, r)
		if w.Code != status {
			t.Errorf("%q: got %d, want %d", header, w.Code, status)
		}
	}
	c.want("GET", "/api/rollouts/x", "", 401, `{"detail":"Invalid or missing API key"}`)
	c.want("GET", "/healthz", "", 200, `{"status":"ok"}`)
}

// Web pages of other sites change nothing, and reach nothing by DNS rebinding.
func TestPages(t *testing.T) {
	t.Parallel()
	c := open(t, gateway.Config{AllowedHosts: []string{"agl.internal"}, Origins: []string{"https://app.example"}})
	for _, x := range []struct {
		host, origin string
		want         int
	}{
		{"127.0.0.1:8080", "", 200}, {"agl.internal:8080", "", 200}, {"evil.example", "", 403},
		{"127.0.0.1:8080", "https://evil.example", 403}, {"127.0.0.1:8080", "https://app.example", 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/proxy/resume", http.NoBody)
		r.Host = x.host
		if x.origin != "" {
			r.Header.Set("Origin", x.origin)
		}
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, r)
		if w.Code != x.want {
			t.Errorf("host %s, origin %s: got %d %s, want %d", x.host, x.origin, w.Code, w.Body, x.want)
		}
	}
}

// What this API deletes stays in the store, and the id is free again.
func TestDelete(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	c := open(t, gateway.Config{Store: s})
	for n := range 3 {
		c.must("POST", "/api/rollouts", fmt.Sprintf(`[{"input":%d,"rollout_id":"r"},{"input":9,"rollout_id":"other"}]`, n))
		if input, _ := rawjson.Get(mustGet(c, "r"), "input"); string(input) != fmt.Sprint(n) {
			t.Errorf("round %d: got input %s", n, input)
		}
		c.must("POST", "/api/rollouts/r/attempt/0/events", `{"event_type":"reward","data":{"value":1}}`)
		if n == 1 {
			c.finish("r")
		}
		c.must("DELETE", "/api/rollouts/r", "")
	}
	for id, status := range map[string]agl.RolloutStatus{"r": agl.RolloutCancelled, "r~2": agl.RolloutSucceeded, "r~3": agl.RolloutCancelled} {
		stored, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: id})
		if err != nil || stored.Status != status {
			t.Errorf("%s: got %v and %v, want %s", id, stored.Status, err, status)
		}
		spans, err := s.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: id})
		if err != nil || len(spans.Items) != 1 || spans.Items[0].Name != agl.SpanAnnotation {
			t.Errorf("%s: got spans %v and %v, want its reward", id, spans.Items, err)
		}
	}
}

func mustGet(c *client, id string) jsontext.Value {
	c.Helper()
	raw, _ := rawjson.Get(c.must("GET", "/api/rollouts/"+id, ""), "rollout")
	return raw
}

// Rollouts of other APIs are not seen, and those of this API not claimed.
func TestOthers(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	c := open(t, gateway.Config{Store: s, Runners: true})
	enqueued, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{}}})
	if err != nil {
		t.Fatal(err)
	}
	id := enqueued[0].RolloutID
	c.want("GET", "/api/rollouts/"+id, "", 404, fmt.Sprintf(`{"detail":"Rollout not found: %s"}`, id))
	c.want("GET", "/api/rollouts?state_in=queuing", "", 200, "[]")
	if w := c.send("POST", "/api/rollouts", fmt.Sprintf(`[{"input":1,"rollout_id":%q}]`, id)); w.Code != 422 {
		t.Errorf("an id of another API: got %d %s", w.Code, w.Body)
	}
	c.must("POST", "/api/rollouts", `[{"input":1,"rollout_id":"job","config":{"k8s":{"job_template":"x"}}},{"input":1,"rollout_id":"local","config":{"local":{}}},{"input":1,"rollout_id":"free","config":{"timeout_seconds":7}}]`)
	// No controller may see or start what our runners have, or will have.
	var seen []string
	list := func() {
		for _, r := range elements(c.must("GET", "/api/rollouts?state_in=queuing&state_in=running", "")) {
			id, _ := rawjson.Get(r, "rollout_id")
			seen = append(seen, rawjson.Unquote(id))
		}
	}
	list()
	c.want("PATCH", "/api/rollouts/free", `{"status":{"state":"running"}}`, 409, `{"detail":"Rollout free: it belongs to the runners of this store; they report its state"}`)
	claimed, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 9})
	if err != nil || len(claimed.Rollouts) != 2 || claimed.Rollouts[1].RolloutID != "free" || claimed.Rollouts[1].Config.TimeoutSeconds != agl.Some(7.0) {
		t.Fatalf("claimed: got %v and %v", claimed.Rollouts, err)
	}
	attempt := claimed.Rollouts[1].Attempt.AttemptID
	reward, err := agl.NewAttributes(agl.Attr{Key: agl.AttrReward + ".0.name", Value: "primary"}, agl.Attr{Key: agl.AttrReward + ".0.value", Value: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	request, err := agl.NewAttributes(agl.Attr{Key: agl.AttrGenAIRequestModel, Value: "m"}, agl.Attr{Key: agl.AttrModelVersion, Value: "7"},
		agl.Attr{Key: agl.AttrPromptTokenIDs, Value: []int{1, 2}}, agl.Attr{Key: agl.AttrResponseTokenIDs, Value: []int{3}}, agl.Attr{Key: agl.AttrLogprobsContent, Value: `[{"logprob":-0.5}]`})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.AddSpans(t.Context(), agl.AddSpansParams{IssueSequenceIDs: true, Spans: []agl.Span{
		{RolloutID: "free", AttemptID: attempt, SpanID: "1", Name: agl.SpanLiteLLMRequest, Attributes: request},
		{RolloutID: "free", AttemptID: attempt, SpanID: "2", Name: agl.SpanAnnotation, Attributes: reward},
		{RolloutID: "free", AttemptID: attempt, SpanID: "3", Name: "else"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var data []string
	for _, e := range elements(c.must("GET", "/api/rollouts/free/events?format=triplet", "")) {
		raw, _ := rawjson.Get(e, "data")
		data = append(data, string(raw))
	}
	if got, want := strings.Join(data, "\n"), `{"prompt_token_ids":[1,2],"response_token_ids":[3],"response_log_probs":[-0.5],"server":{"model":"m","version":7},"http_status":200,"status":"ok"}`+"\n"+`{"value":0.5}`; got != want {
		t.Errorf("what a runner's agent did:\n got %s\nwant %s", got, want)
	}
	states := ""
	for _, status := range []agl.AttemptStatus{agl.AttemptRunning, agl.AttemptFailed} {
		_, err := s.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: "free", AttemptID: attempt, Status: &status})
		if err != nil {
			t.Fatal(err)
		}
		status, _ := rawjson.Get(mustGet(c, "free"), "status")
		state, _ := rawjson.Get(status, "state")
		version, _ := rawjson.Get(status, "version")
		states += string(state) + string(version)
		list()
	}
	if want := []string{"job", "local", "job", "local", "job", "local"}; !slices.Equal(seen, want) {
		t.Errorf("what controllers see: got %v, want %v", seen, want)
	}
	if want := `"running"2"failed"3`; states != want {
		t.Errorf("states: got %s, want %s", states, want)
	}
	awaitTotal(c, 1)
	c.want("GET", "/api/rollouts/terminal", "", 200, `{"items":[{"rollout_id":"free","state":"failed","data_id":"","is_train":true}],"next_after":1,"total_terminal":1}`)
}

// awaitTotal waits until the log has so many entries: those that the gateway has not
// ended itself come with the store's events.
func awaitTotal(c *client, total int) {
	c.Helper()
	for c.Context().Err() == nil {
		raw, _ := rawjson.Get(c.must("GET", "/api/rollouts/terminal", ""), "total_terminal")
		if string(raw) == fmt.Sprint(total) {
			return
		}
	}
}

// Clients of the store can write any metadata. What they write there as the gateway's keeps neither it nor its log from
// working, and a number far ahead does not make the log as long.
func TestForgedMetadata(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	forge := func() {
		const record = `{"version":1,"config":{}}`
		for _, metadata := range []string{`{"agl.gateway":5}`, `{"agl.gateway":{}}`, `{"agl.gateway.number":50000000}`, `{"agl.gateway":` + record + `,"agl.gateway.number":50000000}`} {
			made, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Metadata: jsontext.Value(metadata)}}})
			if err == nil {
				_, err = s.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: made[0].RolloutID})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	forge()
	c := open(t, gateway.Config{Store: s}) // finds them
	forge()                                // is told of them
	c.create("a")
	c.finish("a")
	if got := len(elements(c.must("GET", "/api/rollouts?state_in=failed&state_in=succeeded", ""))); got != 3 {
		t.Errorf("%d rollouts are listed, want a and the two that have a record", got)
	}
	for logged := 0; logged < 3 && t.Context().Err() == nil; {
		log := c.must("GET", "/api/rollouts/terminal", "")
		items, _ := rawjson.Get(log, "items")
		logged = len(elements(items))
		if total, _ := rawjson.Get(log, "total_terminal"); len(total) > 1 {
			t.Fatalf("the log has %s entries", total)
		}
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	c := open(t, gateway.Config{Store: s})
	c.create("a", "b")
	if _, err := s.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: "a"}); err != nil {
		t.Fatal(err)
	}
	c.want("PATCH", "/api/rollouts/a", `{"status":{"state":"running"}}`, 409, `{"detail":"Rollout a: cannot transition failed -> running"}`)
	status, _ := rawjson.Get(mustGet(c, "a"), "status")
	if message, _ := rawjson.Get(status, "error_message"); string(message) != `"cancelled"` {
		t.Errorf("error_message: got %s", message)
	}
	awaitTotal(c, 1)
}

// Many servers change the same rollouts: each transition happens once, and the log has
// each end once, in one order for all of them.
func TestRaces(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	servers := []*client{open(t, gateway.Config{Store: s}), open(t, gateway.Config{Store: s}), open(t, gateway.Config{Store: s})}
	const rollouts = 20
	var wait sync.WaitGroup
	var running, ended atomic.Int64
	for _, c := range servers {
		wait.Go(func() {
			for n := range rollouts {
				id := fmt.Sprintf("r%d", n)
				c.must("POST", "/api/rollouts", fmt.Sprintf(`[{"input":%d,"rollout_id":%q}]`, n, id))
				if c.patch(id, "running") == 200 {
					running.Add(1)
				}
				c.must("POST", "/api/rollouts/"+id+"/attempt/0/events", `{"event_type":"reward","data":{"value":1}}`)
				if c.patch(id, "succeeded") == 200 {
					ended.Add(1)
				}
			}
		})
	}
	wait.Wait()
	if running.Load() != rollouts || ended.Load() != rollouts {
		t.Errorf("transitions: got %d and %d, want %d of each", running.Load(), ended.Load(), rollouts)
	}
	for _, c := range servers {
		awaitTotal(c, rollouts)
		if got, want := c.send("GET", "/api/rollouts/terminal", "").Body.String(), servers[0].send("GET", "/api/rollouts/terminal", "").Body.String(); got != want {
			t.Errorf("log: got %s, want %s", got, want)
		}
	}
	for n := range rollouts {
		if got := len(elements(servers[0].must("GET", fmt.Sprintf("/api/rollouts/r%d/events", n), ""))); got != len(servers) {
			t.Errorf("events of r%d: got %d, want %d", n, got, len(servers))
		}
	}
}

func elements(list jsontext.Value) (out []jsontext.Value) {
	for v := range rawjson.Elements(list) {
		out = append(out, v)
	}
	return out
}

func TestRestart(t *testing.T) {
	t.Parallel()
	path := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	var log string
	for life := range 3 {
		s, err := store.Open(t.Context(), path, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		g, err := gateway.New(gateway.Config{Store: s, Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := &client{t, g}
		if life > 0 {
			c.want("GET", "/api/rollouts/terminal", "", 200, log)
			c.want("GET", "/proxy/state", "", 200, fmt.Sprintf(`{"paused":true,"retry_after_seconds":%d,"reason":"r","inflight":0}`, life))
			c.want("POST", "/proxy/rollout/x0/attempt/0/mode/train/openai/v1/chat/completions", "{}", 429, `{"error":"gateway paused","reason":"r"}`)
		}
		id := fmt.Sprintf("x%d", life)
		c.create(id)
		c.finish(id)
		c.must("POST", "/proxy/pause", fmt.Sprintf(`{"retry_after_seconds":%d,"reason":"r"}`, life+1))
		c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://127.0.0.1:1"}]`)
		log = c.send("GET", "/api/rollouts/terminal", "").Body.String()
		g.Close()
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if total, _ := rawjson.Get(jsontext.Value(log), "total_terminal"); string(total) != "3" {
		t.Errorf("log: got %s, want 3 rollouts", log)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	c := open(t, gateway.Config{})
	c.handler.(*gateway.Gateway).Drain() //nolint:forcetypeassert // open made it
	w := c.send("GET", "/api/rollouts/x", "")
	if w.Code != 503 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("got %d with %v", w.Code, w.Header())
	}
}

// events returns the data of the rollout's events.
func (c *client) events(query string) (data []string) {
	c.Helper()
	for _, e := range elements(c.must("GET", "/api/rollouts/r/events"+query, "")) {
		raw, _ := rawjson.Get(e, "data")
		data = append(data, string(raw))
	}
	return data
}

func TestTriplets(t *testing.T) {
	t.Parallel()
	c := open(t, gateway.Config{})
	c.create("r")
	post := func(kind, data string) {
		c.must("POST", "/api/rollouts/r/attempt/0/events", fmt.Sprintf(`{"event_type":%q,"data":%s}`, kind, data))
	}
	call := func(n int, response, more string) {
		post("model_request", fmt.Sprintf(`{"response":%s,"server":{"model":"m","version":%d}%s}`, response, n, more))
	}
	call(0, `{"prompt_token_ids":[1,2],"choices":[{"token_ids":[3],"logprobs":{"content":[{"logprob":-1}]}}]}`, `,"routed_experts":[1]`)
	call(1, `{"prompt_token_ids":[1, 2],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":null}]}}]}`, `,"routed_experts":[2]`)
	call(2, `{"prompt_token_ids":[1,2,4,9],"choices":[]}`, `,"routed_experts":[3]`)
	call(3, `{"choices":[{"prompt_token_ids":[5],"token_ids":[6],"logprobs":{"token_logprobs":["-2.5",true]}}]}`, "")
	call(4, `[{"prompt_token_ids":[7]},{"choices":[{"token_ids":[8]}]},{"choices":[{"token_ids":[9]}]}]`, "")
	call(5, `{"prompt_token_ids":null}`, "")
	call(6, `{"prompt_token_ids":[true]}`, "")
	call(7, `7`, "")
	post("reward", `{"value":true,"reason":"x","more":1}`)
	post("note", `{"a":1}`)
	server := func(n int) string { return fmt.Sprintf(`"server":{"model":"m","version":%d}}`, n) }
	want := strings.Join([]string{
		`{"prompt_token_ids":[1, 2],"response_token_ids":[4],"response_log_probs":null,` + server(1),
		`{"prompt_token_ids":[1,2,4,9],"response_token_ids":[],"response_log_probs":null,"server":{"model":"m","version":2},"routed_experts":[3]}`,
		`{"prompt_token_ids":[5],"response_token_ids":[6],"response_log_probs":[-2.5,1.0],` + server(3),
		`{"prompt_token_ids":[7],"response_token_ids":[8,9],"response_log_probs":null,` + server(4),
		`{"prompt_token_ids":null,"response_token_ids":[],"response_log_probs":null,` + server(5),
		`{"prompt_token_ids":[true],"response_token_ids":[],"response_log_probs":null,` + server(6),
		`{"prompt_token_ids":[],"response_token_ids":[],"response_log_probs":null,` + server(7),
		`{"value":true,"reason":"x"}`, `{"a":1}`,
	}, "\n")
	if got := strings.Join(c.events("?format=triplet"), "\n"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, config := range []gateway.Config{
		{Store: memorytest.Open(t), Origins: []string{"no origin"}},
		{}, {Store: agl.UnimplementedStore{}}, {Store: memorytest.Open(t), Timeout: -1}, {Store: memorytest.Open(t), MaxBodyBytes: -1},
		{Store: memorytest.Open(t), ValTemperature: agl.Some(-1.0)},
	} {
		if _, err := gateway.New(config); agl.ErrorCode(err) != agl.CodeInvalid {
			t.Errorf("%+v: got %v", config, err)
		}
	}
}

// FuzzEvents posts any data as a call and reads it back in every form.
func FuzzEvents(f *testing.F) {
	f.Add(`{"response":{"prompt_token_ids":[1],"choices":[{"token_ids":[2],"logprobs":{"content":[{"logprob":NaN}]}}]},"routed_experts":1}`)
	f.Add(`{"response":[{"choices":[]}],"server":3}`)
	c := open(f, gateway.Config{})
	n := 0
	f.Fuzz(func(t *testing.T, data string) {
		n++
		c := &client{t, c.handler}
		id := hex.EncodeToString([]byte(fmt.Sprint(n)))
		c.create(id)
		for range 2 {
			if w := c.send("POST", "/api/rollouts/"+id+"/attempt/0/events", `{"event_type":"model_request","data":`+data+`}`); w.Code >= 500 {
				t.Errorf("post: got %d %s", w.Code, w.Body)
			}
		}
		for _, query := range []string{"", "?format=triplet", "?include_routed_experts=0"} {
			w := c.send("GET", "/api/rollouts/"+id+"/events"+query, "")
			var list []struct {
				Data map[string]jsontext.Value `json:"data"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &list, rawjson.Options()); w.Code != 200 || err != nil {
				t.Errorf("%q: got %d and %v: %s", query, w.Code, err, w.Body)
			}
		}
		c.must("DELETE", "/api/rollouts/"+id, "")
	})
}
