package rest_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/rest"
)

// TestLenience covers what the reference takes although its schema does not
// say so.
func TestLenience(t *testing.T) {
	t.Parallel()
	server := newServer(t, rest.ServerConfig{Store: newStore(t)})
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
		{"invalid UTF-8 passes", "POST", "/rollouts", "{\"input\":\"\xff\"}", nil, 201, "\"input\":\"\xff\""},
		{"escapes pass", "POST", "/rollouts", `{"input":"\u00e9\/<&>"}`, nil, 201, `"input":"\u00e9\/<&>"`},
		{"empty body of octets", "POST", "/workers/w", "", []string{"Content-Type", "application/octet-stream"}, 200, `"worker_id":"w"`},
		{"JSON by another name", "POST", "/rollouts", `{"input":1}`, []string{"Content-Type", "application/vnd.api+json; charset=utf-8"}, 201, `"input":1`},
		{"missing rollout", "GET", "/rollouts/nope%2Fx", "", nil, 200, "null"},
		{"unused query parameter", "GET", "/workers?x=1", "", nil, 200, `"total":0`},
		{"last of a repeated scalar", "GET", "/resources?limit=x&limit=3", "", nil, 200, `"limit":3`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := ask(t, server, tc.method, "/v1/agl"+tc.path, tc.body, tc.header...)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("got %d %s, want %d with %s", w.Code, w.Body, tc.status, tc.want)
			}
		})
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	server := newServer(t, rest.ServerConfig{Store: newStore(t), MaxBodyBytes: 1000})
	zip := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	doc := func(n int) string { return `{"input":"` + strings.Repeat("x", n) + `"}` }
	for _, tc := range []struct {
		name, body, encoding string
		chunked              bool
		status               int
		want                 string
	}{
		{"fits", doc(980), "", false, 201, "xxx"},
		{"too long", doc(1000), "", false, 413, "larger than 1000 bytes"},
		{"too long in chunks", doc(1000), "", true, 413, "larger than 1000 bytes"},
		{"chunked", doc(10), "", true, 201, "xxx"},
		{"gzip", zip(doc(900)), "gzip", false, 201, "xxx"},
		{"a bomb", zip(doc(1 << 20)), "gzip", false, 413, "larger than 1000 bytes"},
		{"not gzip", doc(1), "gzip", false, 400, "not gzip"},
		{"cut gzip", zip(doc(900))[:30], "gzip", false, 400, "could not be read"},
		{"other encoding", doc(1), "br", false, 415, `"br\" is not supported`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/agl/rollouts", strings.NewReader(tc.body))
			r.Header.Set("Content-Encoding", tc.encoding)
			if tc.chunked {
				r.ContentLength = -1
			}
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("got %d %s, want %d with %s", w.Code, w.Body, tc.status, tc.want)
			}
		})
	}
}

// greedyBody is a body that breaks off after its first piece and notes how much
// room it was given.
type greedyBody struct{ room int }

func (b *greedyBody) Read(p []byte) (int, error) {
	if b.room == 0 {
		b.room = len(p)
		return copy(p, "{"), nil
	}
	return 0, io.ErrUnexpectedEOF
}

// TestClaimedLength checks that a length costs the server nothing until the
// body is there.
func TestClaimedLength(t *testing.T) {
	t.Parallel()
	server := newServer(t, rest.ServerConfig{Store: newStore(t)})
	body := &greedyBody{}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/agl/queues/rollouts/enqueue", body)
	r.ContentLength = 64 << 20
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest || body.room > 1<<20 {
		t.Errorf("status %d after a read of up to %d bytes, want 400 and at most 1 MiB", w.Code, body.room)
	}

	long := `{"rollouts":[{"input":"` + strings.Repeat("x", 3<<20) + `"}]}`
	if w := ask(t, server, http.MethodPost, "/v1/agl/queues/rollouts/enqueue", long); w.Code >= 300 {
		t.Errorf("a long body: %d %s", w.Code, w.Body)
	}
	r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/agl/queues/rollouts/enqueue", strings.NewReader(long))
	r.ContentLength++
	w = httptest.NewRecorder()
	server.ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest {
		t.Errorf("a body shorter than it says: %d %s", w.Code, w.Body)
	}
}

// A body that never arrives costs the server a connection for half a minute and
// no more; a long poll is not cut.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := newPipeListener()
		web := httpserver.New(newServer(t, rest.ServerConfig{Store: newStore(t)}), slog.New(slog.DiscardHandler))
		var serving sync.WaitGroup
		serving.Go(func() { _ = web.Serve(listener) })
		defer serving.Wait()
		defer web.Close()
		for _, tc := range []struct {
			body   string
			length int64
			status int
			took   time.Duration
		}{
			{`{"limit":1,`, 20, http.StatusRequestTimeout, 30 * time.Second},
			{`{"limit":1,"wait_seconds":60}`, 29, http.StatusOK, time.Minute},
		} {
			start := time.Now()
			rest, stop := io.Pipe()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://store/v1/agl/queues/rollouts/dequeue", io.MultiReader(strings.NewReader(tc.body), rest))
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = tc.length
			res, err := (&http.Transport{DialContext: listener.dial, DisableKeepAlives: true}).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			answer := readAll(t, res.Body)
			res.Body.Close()
			stop.Close()
			if took := time.Since(start); res.StatusCode != tc.status || took != tc.took {
				t.Errorf("got %s %s after %s, want %d after %s", res.Status, answer, took, tc.status, tc.took)
			}
		}
	})
}

func TestToken(t *testing.T) {
	t.Parallel()
	server := newServer(t, rest.ServerConfig{Store: newStore(t), Token: "s3cret"})
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
		w := ask(t, server, "GET", tc.path, "", "Authorization", tc.authorization)
		if w.Code != tc.status {
			t.Errorf("%s with %q: %d, want %d", tc.path, tc.authorization, w.Code, tc.status)
		}
		if challenge := w.Header().Get("WWW-Authenticate"); (challenge != "") != (tc.status == 401) {
			t.Errorf("%s: challenge is %q", tc.path, challenge)
		}
	}

	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	for _, tc := range []struct {
		name   string
		config rest.ClientConfig
		want   error
	}{
		{"token", rest.ClientConfig{URL: web.URL, Token: "s3cret"}, nil},
		{"in the URL", rest.ClientConfig{URL: strings.Replace(web.URL, "://", "://agl:s3cret@", 1) + "/"}, nil},
		{"none", rest.ClientConfig{URL: web.URL}, agl.ErrUnauthorized},
	} {
		client, err := rest.NewClient(tc.config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Statistics(t.Context()); !errors.Is(err, tc.want) {
			t.Errorf("%s: error is %v, want %v", tc.name, err, tc.want)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if _, err := client.Statistics(t.Context()); !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("%s: error after Close is %v", tc.name, err)
		}
	}
}

func TestCORS(t *testing.T) {
	t.Parallel()
	const good, bad = "http://a.example", "http://b.example"
	server := newServer(t, rest.ServerConfig{Store: newStore(t), CORSOrigins: []string{good}, Token: "s3cret"})
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
		w := ask(t, server, tc.method, "/v1/agl/health", "", "Origin", tc.origin, "Access-Control-Request-Method", "POST")
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
	open := newServer(t, rest.ServerConfig{Store: newStore(t), CORSOrigins: []string{"*"}})
	if w := ask(t, open, "GET", "/v1/agl/health", "", "Origin", bad); w.Header().Get("Access-Control-Allow-Origin") != bad {
		t.Errorf("any origin: %v", w.Header())
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	server := newServer(t, rest.ServerConfig{Store: newStore(t), Version: "v1.2.3<"})
	if w := ask(t, server, "GET", "/", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "v1.2.3&lt;") {
		t.Errorf("page is %d %s", w.Code, w.Body)
	}
	if w := ask(t, server, "GET", "/favicon.ico", ""); w.Code != 404 {
		t.Errorf("unknown page is %d", w.Code)
	}
	ask(t, server, "GET", "/v1/agl/rollouts/some-id", "")
	ask(t, server, "BREW", "/v1/agl/health", "")
	for _, path := range []string{"/metrics", "/v1/prometheus", "/v1/prometheus/"} {
		text := ask(t, server, "GET", path, "").Body.String()
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
	server := newServer(t, rest.ServerConfig{Store: newStore(t)})
	send := func(body string) *httptest.ResponseRecorder {
		return ask(t, server, "POST", "/v1/agl/queues/rollouts/enqueue", body, "Idempotency-Key", "k1")
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
	client := serve(t, newStore(t), 0)
	params := agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte("1")}}, IdempotencyKey: "k"}
	if _, err := client.EnqueueRollouts(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	params.Rollouts[0].Input = []byte("2")
	if _, err := client.EnqueueRollouts(t.Context(), params); !errors.Is(err, agl.ErrConflict) {
		t.Errorf("error is %v, want a conflict", err)
	}
}

// failingWriter is the connection of a client that is gone.
type failingWriter struct{ http.ResponseWriter }

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestClaimReturns(t *testing.T) {
	t.Parallel()
	engine := newStore(t)
	server := newServer(t, rest.ServerConfig{Store: engine})
	queued, err := engine.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte("1")}, {Input: []byte("2")}}})
	if err != nil {
		t.Fatal(err)
	}
	dequeue := func(ctx context.Context) *http.Request {
		return httptest.NewRequestWithContext(ctx, "POST", "/v1/agl/queues/rollouts/dequeue", http.NoBody)
	}
	server.ServeHTTP(failingWriter{httptest.NewRecorder()}, dequeue(t.Context()))

	gone, leave := context.WithCancel(t.Context())
	leave()
	server.ServeHTTP(httptest.NewRecorder(), dequeue(gone))

	for _, want := range queued {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, dequeue(t.Context()))
		var got []agl.AttemptedRollout
		decode(t, w.Body.Bytes(), &got)
		if len(got) != 1 || got[0].RolloutID != want.RolloutID || got[0].Attempt.SequenceID != 1 {
			t.Errorf("claimed %s, want %s with its first attempt", w.Body, want.RolloutID)
		}
	}
}

func TestCancelledIsTold(t *testing.T) {
	t.Parallel()
	engine := newStore(t)
	server := newServer(t, rest.ServerConfig{Store: engine})
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
			ask(t, server, "POST", "/v1/agl/spans", span),
			ask(t, server, "POST", "/v1/agl/spans/batch", `{"spans":[`+another+`]}`),
			ask(t, server, "POST", attempt, `{"metadata":{}}`),
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

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	for _, config := range []rest.ServerConfig{{}, {Store: agl.UnimplementedStore{}, MaxBodyBytes: -1}, {Store: agl.UnimplementedStore{}, EventHeartbeat: -1}} {
		if _, err := rest.NewServer(config); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: error is %v", config, err)
		}
	}
	for _, config := range []rest.ClientConfig{
		{},
		{URL: "localhost:4747"},
		{URL: "ftp://h"},
		{URL: "http://h\x7f"},
		{URL: "http://h", LongPoll: 61e9},
		{URL: "http://h", RequestTimeout: -1},
		{URL: "http://h", MaxBackoff: -1},
		{URL: "http://h", SpanBatch: -1},
		{URL: "http://h", SpanBatchBytes: -1},
	} {
		if _, err := rest.NewClient(config); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: error is %v", config, err)
		}
	}
}
