package server_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/memnet"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// TestLenience covers what the reference takes although its schema does not
// say so.
func TestLenience(t *testing.T) {
	t.Parallel()
	api := newServer(t, server.Config{Store: memorytest.Open(t)})
	for _, tc := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		want                     string // part of the answer
	}{
		{"number in a string", "POST", "/queues/rollouts/dequeue", `{"limit":"2"}`, nil, 200, "[]"},
		{"whole float", "POST", "/queues/rollouts/dequeue", `{"limit":2.0}`, nil, 200, "[]"},
		{"unknown key", "POST", "/queues/rollouts/dequeue", `{"limit":1,"x":{"y":[1]}}`, nil, 200, "[]"},
		{"null body", "POST", "/queues/rollouts/dequeue", `null`, nil, 200, "[]"},
		{"negative limit", "POST", "/queues/rollouts/dequeue", `{"limit":-3}`, nil, 200, "[]"},
		{"repeated key", "POST", "/queues/rollouts/dequeue", `{"limit":1,"limit":0}`, nil, 200, "[]"},
		{"null input", "POST", "/rollouts", `{"input":null}`, nil, 201, `"input":null`},
		{"invalid UTF-8", "POST", "/rollouts", "{\"input\":{\"k\":\"a\xff\"}}", nil, 422, `"loc":["body","input","k"],"msg":"Input should be valid UTF-8"`},
		{"escapes pass", "POST", "/rollouts", `{"input":"\u00e9\/<&>"}`, nil, 201, `"input":"\u00e9\/<&>"`},
		{"empty body of octets", "POST", "/workers/w", "", []string{"Content-Type", "application/octet-stream"}, 200, `"worker_id":"w"`},
		{"JSON by another name", "POST", "/rollouts", `{"input":1}`, []string{"Content-Type", "application/vnd.api+json; charset=utf-8"}, 201, `"input":1`},
		{"missing rollout", "GET", "/rollouts/nope%2Fx", "", nil, 200, "null"},
		{"unused query parameter", "GET", "/resources?x=1", "", nil, 200, `"total":0`},
		{"last of a repeated scalar", "GET", "/resources?limit=x&limit=3", "", nil, 200, `"limit":3`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := ask(t, api, tc.method, "/v1/agl"+tc.path, tc.body, tc.header...)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("got %d %s, want %d with %s", w.Code, w.Body, tc.status, tc.want)
			}
		})
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	if _, err := server.New(server.Config{Store: memorytest.Open(t), Token: "s3cret\n"}); agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), "U+000A") {
		t.Errorf("a token that nobody can send: %v", err)
	}
	api := newServer(t, server.Config{Store: memorytest.Open(t), Token: "s3cret"})
	basic := func(user, password string) string {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.SetBasicAuth(user, password)
		return r.Header.Get("Authorization")
	}
	for _, tc := range []struct {
		path, authorization string
		status              int
	}{
		{"/v1/agl/health", "", 200},
		{"/v1/agl/statistics", "", 401},
		{"/v1/agl/statistics", "Bearer s3cret", 200},
		{"/v1/agl/statistics", "Bearer s3cre", 401},
		{"/v1/agl/statistics", "Bearer ", 401},
		{"/v1/agl/statistics", basic("agl", "s3cret"), 200},
		{"/v1/agl/statistics", basic("s3cret", ""), 401},
		{"/v1/agl/statistics", "s3cret", 401},
		{"/metrics", "", 401},
		{"/", "", 401},
		{"/v1/agl/nope", "", 401},
	} {
		w := ask(t, api, "GET", tc.path, "", "Authorization", tc.authorization)
		if w.Code != tc.status {
			t.Errorf("%s with %q: %d, want %d", tc.path, tc.authorization, w.Code, tc.status)
		}
		if challenge := w.Header().Get("WWW-Authenticate"); (challenge != "") != (tc.status == 401) {
			t.Errorf("%s: challenge is %q", tc.path, challenge)
		}
	}
}

// A page asks for the token itself, so its files need none. All else does.
func TestTokenAndUI(t *testing.T) {
	t.Parallel()
	ui := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.URL.Path) })
	api := newServer(t, server.Config{Store: memorytest.Open(t), Token: "s3cret", UI: ui})
	for path, want := range map[string]int{
		"/": 200, "/app.js": 200, "/v1x": 200,
		"/v1/agl/statistics": 401, "/v1/agl/nope": 401, "/v1/": 401, "/v1/prometheus": 401, "/metrics": 401, "/v1/../v1/agl/statistics": 401,
	} {
		w := ask(t, api, "GET", path, "")
		if w.Code != want || want == 200 && w.Body.String() != "page "+path {
			t.Errorf("GET %s: %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	if w := ask(t, api, "POST", "/", ""); w.Code != 401 {
		t.Errorf("POST /: %d", w.Code)
	}
}

func TestCORS(t *testing.T) {
	t.Parallel()
	const good, bad = "http://a.example", "http://b.example"
	api := newServer(t, server.Config{Store: memorytest.Open(t), CORSOrigins: []string{good}, Token: "s3cret"})
	for _, tc := range []struct {
		method, origin string
		status         int
		allowed        string
	}{
		{"GET", good, 200, good},
		{"GET", bad, 200, ""},
		{"GET", "", 200, ""},
		{"OPTIONS", good, 200, good},
		{"OPTIONS", bad, 200, ""},
	} {
		w := ask(t, api, tc.method, "/v1/agl/health", "", "Origin", tc.origin, "Access-Control-Request-Method", "POST")
		h := w.Header()
		if w.Code != tc.status || h.Get("Access-Control-Allow-Origin") != tc.allowed {
			t.Errorf("%s from %q: %d %v", tc.method, tc.origin, w.Code, h)
		}
		if (h.Get("Access-Control-Allow-Credentials") == "true") != (tc.allowed != "") {
			t.Errorf("%s from %q: credentials: %v", tc.method, tc.origin, h)
		}
		if preflight := tc.method == "OPTIONS" && tc.allowed != ""; preflight != strings.Contains(h.Get("Access-Control-Allow-Methods"), "GET") {
			t.Errorf("%s from %q: methods: %v", tc.method, tc.origin, h)
		}
	}
	open := newServer(t, server.Config{Store: memorytest.Open(t), CORSOrigins: []string{"*"}})
	for _, method := range []string{"GET", "OPTIONS"} {
		w := ask(t, open, method, "/v1/agl/health", "", "Origin", bad, "Access-Control-Request-Method", "POST")
		if h := w.Header(); h.Get("Access-Control-Allow-Origin") != bad || h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("any origin: %v", h)
		}
	}
}

// What a page of another site makes a browser send changes nothing, and a page cannot
// pass for the server's own by its name.
func TestCrossSite(t *testing.T) {
	t.Parallel()
	api := newServer(t, server.Config{Store: memorytest.Open(t), CORSOrigins: []string{"https://app.example"}, AllowedHosts: []string{"store.example"}})
	for _, tc := range []struct {
		what, host, origin string
		status             int
	}{
		{"a program", "127.0.0.1", "", 200},
		{"a page of another site", "127.0.0.1", "https://evil.example", 403},
		{"a page that may call", "127.0.0.1", "https://app.example", 200},
		{"the server's name", "store.example", "", 200},
		{"another name", "evil.example", "", 403},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/agl/queues/rollouts/close", nil)
		r.Host = tc.host
		if tc.origin != "" {
			r.Header.Set("Origin", tc.origin)
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if w.Code != tc.status {
			t.Errorf("%s: %d %s, want %d", tc.what, w.Code, w.Body, tc.status)
		}
	}
	if _, err := server.New(server.Config{Store: memorytest.Open(t), CORSOrigins: []string{"app.example"}}); err == nil || !strings.Contains(err.Error(), `CORSOrigins: got "app.example"`) {
		t.Errorf("an origin without a scheme: %v", err)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	api := newServer(t, server.Config{Store: memorytest.Open(t), Version: "v1.2.3<"})
	if w := ask(t, api, "GET", "/", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "v1.2.3&lt;") {
		t.Errorf("page is %d %s", w.Code, w.Body)
	}
	if w := ask(t, api, "GET", "/favicon.ico", ""); w.Code != 404 {
		t.Errorf("unknown page is %d", w.Code)
	}
	ask(t, api, "GET", "/v1/agl/rollouts/some-id", "")
	ask(t, api, "BREW", "/v1/agl/health", "")
	for _, path := range []string{"/metrics", "/v1/prometheus", "/v1/prometheus/"} {
		text := ask(t, api, "GET", path, "").Body.String()
		for _, want := range []string{
			`agl_http_total{method="GET",path="/v1/agl/rollouts/{rollout_id}",status="200"} 1`,
			`agl_http_total{method="other",path="/v1/agl/health",status="405"} 1`,
			`agl_http_latency_bucket{method="GET",path="/v1/agl/rollouts/{rollout_id}",status="200",le="300"} 1`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %s:\n%s", path, want, text)
			}
		}
		if n := strings.Count(text, `agl_http_latency_bucket{method="GET",path="/v1/agl/rollouts/{rollout_id}",status="200"`); n != 45 {
			t.Errorf("%s: %d buckets, want 44 and +Inf", path, n)
		}
	}
}

func TestIdempotencyConflict(t *testing.T) {
	t.Parallel()
	api := newServer(t, server.Config{Store: memorytest.Open(t)})
	send := func(body string) *httptest.ResponseRecorder {
		return ask(t, api, "POST", "/v1/agl/queues/rollouts/enqueue", body, "Idempotency-Key", "k1")
	}
	first, again := send(`{"rollouts":[{"input":1}]}`), send(`{"rollouts":[{"input":1}]}`)
	if first.Code != 201 || first.Body.String() != again.Body.String() {
		t.Errorf("a repeat got %s, not %s", again.Body, first.Body)
	}
	other := send(`{"rollouts":[{"input":2}]}`)
	var doc struct {
		Detail []struct {
			Type string   `json:"type"`
			Loc  []string `json:"loc"`
		} `json:"detail"`
		Code string `json:"code"`
	}
	decode(t, other.Body.Bytes(), &doc)
	if other.Code != 422 || doc.Code != "conflict" || len(doc.Detail) != 1 || doc.Detail[0].Type != "idempotency_conflict" {
		t.Errorf("the key with another body got %d %s", other.Code, other.Body)
	}
}

// A write to an attempt that was cancelled says so.
func TestCancelledIsTold(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	api := newServer(t, server.Config{Store: engine})
	started, err := engine.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: []byte("1")}})
	if err != nil {
		t.Fatal(err)
	}
	span := strings.NewReplacer("ro-1", started.RolloutID, "at-1", started.Attempt.AttemptID).Replace(spanDocument)
	another := strings.Replace(span, "b7ad6b7169203331", "b7ad6b7169203332", 1)
	attempt := "/v1/agl/rollouts/" + started.RolloutID + "/attempts/" + started.Attempt.AttemptID
	check := func(want string) {
		t.Helper()
		for _, w := range []*httptest.ResponseRecorder{
			ask(t, api, "POST", "/v1/agl/spans", span),
			ask(t, api, "POST", "/v1/agl/spans/batch", `{"spans":[`+another+`]}`),
			ask(t, api, "POST", attempt, `{"metadata":{}}`),
		} {
			if got := w.Header().Get("Agl-Attempt-State"); got != want || w.Code > 201 {
				t.Errorf("state is %q, want %q: %d %s", got, want, w.Code, w.Body)
			}
		}
	}
	check("")
	if _, err := engine.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: started.RolloutID}); err != nil {
		t.Fatal(err)
	}
	check("cancelled")
}

// TestDrain checks that blocked requests are answered, not cut off, when the
// server stops.
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := memorytest.Open(t)
		ids := enqueue(t, engine, "1", "2")
		finish(t, engine, ids[0])
		if _, err := engine.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 5}); err != nil {
			t.Fatal(err)
		}
		api := newServer(t, server.Config{Store: engine})
		listener := memnet.Listen()
		web := &http.Server{Handler: api}
		var running sync.WaitGroup
		running.Go(func() { _ = web.Serve(listener) })
		answers := make(chan string, 3)
		for _, r := range []struct{ path, body string }{
			{"/queues/rollouts/dequeue", `{"wait_seconds":60}`},
			{"/waits/rollouts", `{"rollout_ids":["` + ids[0] + `","` + ids[1] + `"]}`},
			{"/events", ""},
		} {
			running.Go(func() { answers <- r.path + " " + rawRequest(t, listener, r.path, r.body) })
		}
		synctest.Wait()
		start := time.Now()
		api.Drain()
		if err := web.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		running.Wait()
		close(answers)
		var got []string
		for a := range answers {
			got = append(got, a)
		}
		slices.Sort(got)
		if len(got) != 3 || !strings.HasPrefix(got[0], "/events 200 OK : agl") || got[1] != "/queues/rollouts/dequeue 200 OK [] incomplete" ||
			!strings.Contains(got[2], ids[0]) || strings.Contains(got[2], ids[1]) || !strings.HasSuffix(got[2], "] incomplete") {
			t.Errorf("answers: %q", got)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the server took %s to stop", took)
		}
	})
}

// rawRequest sends a request on a connection of its own and returns the status
// and the body.
func rawRequest(t *testing.T, listener *memnet.Listener, path, body string) string {
	t.Helper()
	transport := &http.Transport{DialContext: listener.Dial, DisableKeepAlives: true}
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://store/v1/agl"+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return ""
	}
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return err.Error()
	}
	defer res.Body.Close()
	return res.Status + " " + readAll(t, res.Body) + " " + res.Header.Get("Agl-Wait")
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	for _, config := range []server.Config{{}, {Store: agl.UnimplementedStore{}, MaxBodyBytes: -1}, {Store: agl.UnimplementedStore{}, EventHeartbeat: -1}} {
		if _, err := server.New(config); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: error is %v", config, err)
		}
	}
}

// What a mux would redirect to the path of something else is refused, and says how to write it.
func TestDotSegments(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Config{Store: memorytest.Open(t)})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/v1/agl/workers/..":         "write it as %2E%2E",
		"/v1/agl/rollouts/./cancel":  "write it as %2E\"",
		"/v1/agl/workers/%2E%2E":     "null",
		"/v1/agl/workers/..%2Fworld": "null",
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if body := w.Body.String(); w.Code/100 == 3 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, w.Code, body, want)
		}
	}
}
