package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/runkey"
	"github.com/agl-go/agl/proxy/upstream"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// roundTripper is a backend in memory.
type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Keys with limits are counted: rollouts and bytes of requests that succeed, and the tokens that
// the backend has counted, of which as many are reserved as a call may use.
func TestBudgets(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	status, reply, asked := 200, `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}`, ""
	g, err := New(Config{Store: store, Key: "s3cret", Access: keys, Budgets: keys, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if asked = string(body); status == 0 {
			return nil, errors.New("connection refused")
		}
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(reply))}, err
	})})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	send := func(key, method, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("X-Api-Key", key)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		return w
	}
	create := func(limits access.Limits) access.CreatedKey {
		created, err := keys.Create(t.Context(), access.NewKey{Name: "budget", Scopes: access.Train, Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	spent := func(id string) access.Usage {
		list, err := keys.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range list {
			if k.ID == id {
				return *k.Usage
			}
		}
		return access.Usage{}
	}
	for _, r := range []struct{ path, body string }{
		{"/api/models", `[{"model":"` + DefaultModel + `","endpoint":"http://b/v1"}]`}, {"/api/rollouts", `[{"rollout_id":"r","input":{"data_id":"d"}}]`},
	} {
		if w := send("s3cret", "POST", r.path, r.body); w.Code != http.StatusCreated {
			t.Fatalf("%s: %d %s", r.path, w.Code, w.Body)
		}
	}
	few := create(access.Limits{MaxRollouts: 3, MaxBytes: 200})
	const two = `[{"rollout_id":"a","input":{"data_id":"a"}},{"rollout_id":"b","input":{"data_id":"b"}}]`
	if w := send(few.Text, "POST", "/api/rollouts", two); w.Code != http.StatusCreated {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := send(few.Text, "POST", "/api/rollouts", strings.ReplaceAll(two, `"rollout_id":"`, `"rollout_id":"x`)); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "3 rollouts: 1 are left") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := send(few.Text, "POST", "/proxy/pause", `{"reason":"`+strings.Repeat("x", 200)+`"}`); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "200 bytes: ") || !strings.Contains(w.Body.String(), " are left") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got, want := spent(few.ID), (access.Usage{Spent: access.Amounts{Rollouts: 2, Bytes: int64(len(two))}}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}

	const chat, body = "/proxy/rollout/r/attempt/0/mode/train/openai/v1/chat/completions", `{"messages":[],"max_tokens":20}`
	caller := create(access.Limits{MaxTokens: 100, MaxCalls: 1})
	for _, tc := range []struct {
		what, body, reply string
		status, want      int
		tokens            int64 // spent in all
	}{
		{"a call", body, reply, 200, 200, 10},
		{"too large a call", `{"messages":[],"max_tokens":2000}`, reply, 200, 429, 10},
		{"one without a limit, which gets one", `{"messages":[]}`, reply, 200, 429, 10},
		{"a wrong limit", `{"messages":[],"max_tokens":-1}`, reply, 200, 400, 10},
		{"one that fails", body, `{"error":{"message":"too long"}}`, 400, 400, 10},
		{"one that nobody has counted", body, `{"choices":[]}`, 200, 200, 10 + 20 + int64(len(body))},
		{"one for which nothing is left", body, reply, 200, 429, 10 + 20 + int64(len(body))},
	} {
		status, reply = tc.status, tc.reply
		w := send(caller.Text, "POST", chat, tc.body)
		if w.Code != tc.want || w.Code == http.StatusTooManyRequests && !strings.Contains(w.Body.String(), "has a budget of 100 tokens") {
			t.Errorf("%s: %d %s, want %d", tc.what, w.Code, w.Body, tc.want)
		}
		if got := w.Header().Get("X-Should-Retry"); (got == "false") != (tc.want == http.StatusTooManyRequests) {
			t.Errorf("%s: X-Should-Retry is %q", tc.what, got)
		}
		for spent(caller.ID).Reserved != (access.Amounts{}) {
			runtime.Gosched() // until the meter has told
		}
		if got := spent(caller.ID).Spent.Tokens; got != tc.tokens {
			t.Errorf("%s: %d tokens are spent, want %d", tc.what, got, tc.tokens)
		}
	}
	once, err := keys.Create(t.Context(), access.NewKey{Name: "once", Scopes: access.Train, Rules: access.Rules{CallsPerMinute: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{200, 429} {
		if w := send(once.Text, "POST", chat, body); w.Code != want || (w.Header().Get("Retry-After") == "") != (want == 200) {
			t.Errorf("a call each minute: %d %s, Retry-After %q", w.Code, w.Body, w.Header().Get("Retry-After"))
		}
	}
	large := create(access.Limits{MaxTokens: 100_000})
	if status, reply = 200, `{"usage":{"prompt_tokens":1}}`; send(large.Text, "POST", chat, `{"messages":[]}`).Code != http.StatusOK || !strings.Contains(asked, `"max_completion_tokens":4096`) {
		t.Errorf("the backend got %s", asked)
	}
	dollars := create(access.Limits{MaxUSD: 0.001})
	if w := send(dollars.Text, "POST", chat, body); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "has no price here: set --gateway-price") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	g.cfg.Price = &upstream.Price{Prompt: 2, Completion: 10}
	status, reply = 200, `{"usage":{"prompt_tokens":100,"completion_tokens":20}}`
	if w := send(dollars.Text, "POST", chat, body); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for spent(dollars.ID).Reserved != (access.Amounts{}) {
		runtime.Gosched() // until the meter has told
	}
	if got := spent(dollars.ID).Spent.NanoUSD; got != 400_000 { // 100 tokens at 2 and 20 at 10 dollars per million
		t.Errorf("%d billionths of a dollar are spent", got)
	}
	if w := send(dollars.Text, "POST", chat, `{"messages":[],"max_tokens":100}`); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "0.001 dollars: 0.0006 are left") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	g.Close()
	if got := spent(large.ID); got != (access.Usage{Spent: access.Amounts{Tokens: 1, Bytes: int64(len(`{"messages":[]}`))}}) {
		t.Errorf("after the gateway was closed: %+v", got)
	}
}

// A call whose reply is lost has cost what it may have used, also when a repeat works; and a stream
// says its tokens, whether its agent asks or not.
func TestBudgetsOfLostReplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, budgetsOfLostReplies)
}

func budgetsOfLostReplies(t *testing.T) {
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	const whole = `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}`
	const chunks = `data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":"stop"}]}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}` + "\n\ndata: [DONE]\n\n"
	lost := 0
	asked := ""
	g, err := New(Config{Store: store, Key: "s3cret", Access: keys, Budgets: keys, Streams: true, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if asked = string(body); lost > 0 {
			lost--
			return nil, io.ErrUnexpectedEOF
		}
		res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(whole))}
		if strings.Contains(asked, `"stream":true`) {
			res.Header, res.Body = http.Header{"Content-Type": {"text/event-stream"}}, io.NopCloser(strings.NewReader(chunks))
		}
		return res, err
	})})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	send := func(key, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("X-Api-Key", key)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		return w
	}
	send("s3cret", "/api/models", `[{"model":"`+DefaultModel+`","endpoint":"http://b/v1"}]`)
	send("s3cret", "/api/rollouts", `[{"rollout_id":"r","input":{"data_id":"d"}}]`)
	const chat, body, stream = "/proxy/rollout/r/attempt/0/mode/train/openai/v1/chat/completions", `{"messages":[],"max_tokens":20}`, `{"messages":[],"max_tokens":20,"stream":true}`
	const most, used = int64(len(body) + 20), 10
	for _, tc := range []struct {
		name, body   string
		lost, status int
		tokens       int64
	}{
		{"a call", body, 0, 200, used}, {"one lost reply", body, 1, 200, most + used}, {"every reply is lost", body, maxTries, 502, maxTries * most}, {"a stream", stream, 0, 200, used},
	} {
		created, err := keys.Create(t.Context(), access.NewKey{Name: "budget", Scopes: access.Train, Limits: access.Limits{MaxTokens: 10_000, MaxCalls: 1}})
		if err != nil {
			t.Fatal(err)
		}
		lost = tc.lost
		w := send(created.Text, chat, tc.body)
		if w.Code != tc.status || tc.body == stream && (!strings.Contains(asked, `"stream_options":{"include_usage":true}`) || strings.Contains(w.Body.String(), "usage") || !strings.Contains(w.Body.String(), "[DONE]")) {
			t.Errorf("%s: %d %s, asked %s", tc.name, w.Code, w.Body, asked)
		}
		for {
			list, err := keys.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if usage := list[slices.IndexFunc(list, func(k access.Key) bool { return k.ID == created.ID })].Usage; usage.Reserved == (access.Amounts{}) {
				if usage.Spent.Tokens != tc.tokens {
					t.Errorf("%s: %d tokens are spent, want %d", tc.name, usage.Spent.Tokens, tc.tokens)
				}
				break
			}
			runtime.Gosched() // until the meter has told
		}
	}
}

// A model call that is running when the key of its caller is revoked ends soon, and so does one with
// the key of its rollout; what it may have cost is spent.
func TestCallsEndWithTheKey(t *testing.T) {
	t.Parallel()
	for _, ofRollout := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memorytest.Open(t)
			keys := access.NewKeys(store)
			arrived := make(chan struct{})
			g, err := New(Config{Store: store, Key: "s3cret", Access: keys, Budgets: keys, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				close(arrived)
				<-r.Context().Done()
				return nil, r.Context().Err()
			})})
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			send := func(key, path, body string) *httptest.ResponseRecorder {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
				r.Header.Set("X-Api-Key", key)
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				g.ServeHTTP(w, r)
				return w
			}
			send("s3cret", "/api/models", `[{"model":"`+DefaultModel+`","endpoint":"http://b/v1"}]`)
			send("s3cret", "/api/rollouts", `[{"rollout_id":"r","input":{"data_id":"d"}}]`)
			created, err := keys.Create(t.Context(), access.NewKey{Name: "agent", Scopes: access.Live, Limits: access.Limits{MaxTokens: 1000}})
			if err != nil {
				t.Fatal(err)
			}
			given := created.Text
			if ofRollout {
				given, _ = runkey.ForAttempt(runkey.New("s3cret", time.Now().Add(time.Hour)), "r", anyAttempt)
			}
			const body = `{"messages":[],"max_tokens":20}`
			answer := make(chan *httptest.ResponseRecorder)
			go func() {
				answer <- send(given, "/proxy/rollout/r/attempt/0/mode/train/openai/v1/chat/completions", body)
			}()
			<-arrived
			if ofRollout {
				_, err = keys.RevokeAttempt(t.Context(), agl.Claim{RolloutID: "r"}, "test")
			} else {
				_, err = keys.Revoke(t.Context(), created.ID, "test")
			}
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if w := <-answer; w.Code != http.StatusUnauthorized || time.Since(began) > time.Second {
				t.Errorf("%d %s after %s", w.Code, w.Body, time.Since(began))
			}
			synctest.Wait()
			list, err := keys.List(t.Context())
			if want := int64(len(body) + 20); !ofRollout && (err != nil || list[0].Usage.Spent.Tokens != want) {
				t.Errorf("spent %+v, %v, want %d", list[0].Usage, err, want)
			}
		})
	}
}
