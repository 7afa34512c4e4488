package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/proxy/record"
	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"
)

const hello = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

// oneCall waits for the record of the only call.
func oneCall(t *testing.T, g *gateway) agl.Span {
	t.Helper()
	flush(t, g)
	calls := g.spans.calls()
	if len(calls) != 1 {
		t.Fatalf("%d calls recorded, want 1", len(calls))
	}
	return calls[0]
}

func attribute(t *testing.T, s *agl.Span, key string) string {
	t.Helper()
	raw, ok := s.Attributes.Get(key)
	if !ok {
		return ""
	}
	if text, ok := s.Attributes.GetString(key); ok {
		return text
	}
	return string(raw)
}

// Pieces of a stream reach the agent before the backend sends the next one, and
// however they are cut they add up to the same bytes and the same record.
func TestStreamLiveInAnyCut(t *testing.T) {
	t.Parallel()
	plain := proxytest.VLLM(echo)(t.Context(), proxytest.Request{Body: []byte(strings.Replace(hello, `{`, `{"stream":true,`, 1))})
	rich := proxytest.VLLM(echo)(t.Context(), proxytest.Request{Body: []byte(strings.Replace(hello, `{`, `{"stream":true,"logprobs":true,"return_token_ids":true,`, 1))})
	stream := strings.Join(rich.Pieces, "")
	want := strings.Join(plain.Pieces, "")
	var pieces atomic.Pointer[[]string]
	backend := serve(t, func(context.Context, proxytest.Request) proxytest.Reply {
		return proxytest.Reply{ContentType: "text/event-stream", Pieces: *pieces.Load()}
	})
	g := start(t, backend.BaseURL(), nil)
	rapid.Check(t, func(rt *rapid.T) {
		var cut []string
		for rest := stream; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "n")
			cut, rest = append(cut, rest[:n]), rest[n:]
		}
		pieces.Store(&cut)
		got := post(t, g.URL+attemptPath, strings.Replace(hello, `{`, `{"stream":true,`, 1))
		if string(got.body) != want || got.header.Get("X-Accel-Buffering") != "no" {
			rt.Fatalf("got X-Accel-Buffering %q\n%s\nwant \"no\"\n%s", got.header.Get("X-Accel-Buffering"), got.body, want)
		}
	})
	flush(t, g)
	for _, c := range g.spans.calls() {
		if got := attribute(t, &c, agl.AttrResponseTokenIDs); got != "[72,73]" {
			t.Fatalf("recorded %s, want [72,73]", got)
		}
	}

	step := make(chan struct{})
	live := serve(t, func(context.Context, proxytest.Request) proxytest.Reply {
		return proxytest.Reply{ContentType: "text/event-stream", Pieces: rich.Pieces, Step: func(ctx context.Context, _ int) error {
			select {
			case <-step:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
	})
	if err := g.SetModels([]proxy.Model{{Name: "m", BaseURL: live.BaseURL()}}); err != nil {
		t.Fatal(err)
	}
	body := open(t.Context(), t, g.URL+attemptPath, strings.Replace(hello, `{`, `{"stream":true,`, 1))
	reader := bufio.NewReader(body)
	for _, event := range plain.Pieces {
		step <- struct{}{}
		buf := make([]byte, len(event))
		if _, err := io.ReadFull(reader, buf); err != nil {
			t.Fatal(err)
		}
		if a, b := withoutID(string(buf)), withoutID(event); a != b {
			t.Fatalf("got %s, want %s", a, b)
		}
	}
}

func withoutID(s string) string {
	_, rest, _ := strings.Cut(s, ",")
	return rest
}

// open begins a call and returns the reply's body, to be read as it comes.
func open(ctx context.Context, t *testing.T, url, body string) io.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res.Body
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	backend := serve(t, proxytest.VLLM(echo))
	g := start(t, backend.BaseURL()+"/", nil)
	for _, tt := range []struct {
		path             string
		rollout, attempt string // recorded for
	}{
		{"/v1/chat/completions", "", ""},
		{"/chat/completions", "", ""},
		{"/rollout/r1/attempt/a1/v1/chat/completions", "r1", "a1"},
		{"/rollout/r2/attempt/a1/chat/completions?x=1", "r2", "a1"},
		{"/rollout/r%2F3/attempt/a%20%25/v1/chat/completions", "r/3", "a %"},
		{"/rollout/r/4/attempt/a/v1/chat/completions", "r/4", "a"}, // as Anthropic's Go SDK undoes it
	} {
		before := len(backend.Requests())
		r := post(t, g.URL+tt.path, hello)
		if r.status != 200 || !bytes.Contains(r.body, []byte(`"HI"`)) {
			t.Errorf("%s: %d %s", tt.path, r.status, r.body)
		}
		flush(t, g)
		request := backend.Requests()[before]
		if _, query, _ := strings.Cut(tt.path, "?"); query != "" && request.Path != "/v1/chat/completions?"+query {
			t.Errorf("%s: the backend got %s", tt.path, request.Path)
		}
		if asked := bytes.Contains(request.Body, []byte("return_token_ids")); asked != (tt.rollout != "") {
			t.Errorf("%s: token ids asked for: %v", tt.path, asked)
		}
		calls := g.spans.calls()
		if tt.rollout == "" {
			if len(calls) != 0 {
				t.Errorf("%s: recorded", tt.path)
			}
			continue
		}
		last := calls[len(calls)-1]
		if last.RolloutID != tt.rollout || last.AttemptID != tt.attempt {
			t.Errorf("%s: recorded for %q %q", tt.path, last.RolloutID, last.AttemptID)
		}
	}
	for path, want := range map[string]string{
		"/v1/models":                       `{"object":"list","data":[{"id":"m","object":"model","created":0,"owned_by":"agl"}]}`,
		"/rollout/r/attempt/a/models":      `{"object":"list","data":[{"id":"m","object":"model","created":0,"owned_by":"agl"}]}`,
		"/rollout/r/attempt/a/v1/models/m": `{"id":"m","object":"model","created":0,"owned_by":"agl"}`,
		"/health":                          `{"status":"ok"}`,
		"/v1/models/x":                     `{"type":"error","error":{"message":"the model x does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}`,
	} {
		if got := get(t, g.URL+path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Paths that have no model write pass with their body, recorded nowhere.
func TestOtherPaths(t *testing.T) {
	t.Parallel()
	backend := serve(t, func(_ context.Context, r proxytest.Request) proxytest.Reply {
		return proxytest.Reply{Body: r.Path + " " + string(r.Body)}
	})
	g := start(t, backend.BaseURL(), func(c *proxy.Config) { c.Models[0].BackendModel = "big" })
	for path, want := range map[string]string{
		"/v1/embeddings":                  `/v1/embeddings {"model":"big", "input":"x"}`,
		"/rollout/r/attempt/a/embeddings": `/v1/embeddings {"model":"big", "input":"x"}`,
		"/completions":                    `/v1/completions {"model":"big", "input":"x"}`,
		"/v1/responses":                   `/v1/responses {"model":"big", "input":"x"}`,
	} {
		if got := post(t, g.URL+path, `{"model":"m", "input":"x"}`); !strings.Contains(string(got.body), want) {
			t.Errorf("%s: got %s, want %s", path, got.body, want)
		}
	}
}

// An agent reaches the paths that are listed, spelled as they are, and nothing else
// of a backend. Other spellings would escape the record, or the backend's base URL.
func TestPathsOfAgents(t *testing.T) {
	t.Parallel()
	backend := serve(t, func(_ context.Context, r proxytest.Request) proxytest.Reply {
		return proxytest.Reply{Body: r.Path + " " + string(r.Body)}
	})
	g := start(t, backend.BaseURL(), func(c *proxy.Config) { c.ForwardPaths = []string{"/rerank"} })
	const attempt = "/rollout/r/attempt/a"
	for _, path := range []string{
		"/v1/rerank", attempt + "/v1/rerank",
	} {
		if got := post(t, g.URL+path, hello); got.status != 200 || !strings.HasPrefix(string(got.body), "/v1/rerank ") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	before := len(backend.Requests())
	for _, path := range []string{
		"/chat/%63ompletions", "//chat/completions", "/./chat/completions", "/x/../chat/completions", "/chat/completions/", "/chat//completions",
		"/%2e%2e/shutdown", "/../shutdown", "/v1/../shutdown", "/v1/v1/v1/chat/completions", "/rerank/../load_lora_adapter", "/%72erank",
		"/load_lora_adapter", "/files", "/fine_tuning/jobs", "/shutdown",
	} {
		for _, prefix := range []string{"", "/v1", attempt, attempt + "/v1"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/", strings.NewReader(hello))
			var err error
			if r.URL, err = url.Parse("http://localhost" + prefix + path); err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			if g.ServeHTTP(w, r); w.Code != http.StatusNotFound {
				t.Errorf("%s%s: %d %s", prefix, path, w.Code, w.Body)
			}
		}
	}
	if got := backend.Requests()[before:]; len(got) > 0 {
		t.Errorf("the backend got %d requests, the first %s", len(got), got[0].Path)
	}
	for _, path := range []string{"rerank", "/v1/rerank", "/../x", "/a%2fb", "/chat/completions", "//x", "/x/", ""} {
		_, err := proxy.New(proxy.Config{Models: []proxy.Model{{Name: "m", BaseURL: "http://x/v1"}}, Spans: &spans{}, ForwardPaths: []string{path}})
		if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "ForwardPaths") {
			t.Errorf("ForwardPaths %q: got %v, want it refused", path, err)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	const text = "text/plain"
	for _, tt := range []struct {
		name    string
		body    string
		reply   proxytest.Reply
		edit    func(c *proxy.Config)
		status  int
		source  string
		message string // in the body
		fault   string // in the record; empty when there must be none
	}{
		{name: "unknown model", body: `{"model":"x"}`, status: 404, source: "gateway", message: `the model \"x\" does not exist; there are: m`, fault: "does not exist"},
		{name: "not JSON", body: `model=m`, status: 400, source: "gateway", message: "the body must be a JSON object", fault: "JSON object"},
		{name: "no model", body: `{}`, status: 400, source: "gateway", message: `"param":"model"`, fault: "model"},
		{name: "too large", body: `{"model":"m","x":"` + strings.Repeat("x", 100) + `"}`, edit: func(c *proxy.Config) { c.MaxRequestBytes = 100 }, status: 413, source: "gateway", message: "100 bytes", fault: "100 bytes"},
		{name: "backend away", edit: func(c *proxy.Config) { c.Models[0].BaseURL = "http://127.0.0.1:1/v1" }, status: 502, source: "gateway", message: "cannot be reached", fault: "cannot be reached"},
		{name: "key with a line break", edit: func(c *proxy.Config) { c.Models[0].APIKey = "sk-1\n" }, status: 500, source: "gateway", message: "U+000A", fault: "U+000A"},
		{name: "key not set", edit: func(c *proxy.Config) { c.Models[0].APIKey = "env:NOPE" }, status: 500, source: "gateway", message: "NOPE", fault: "NOPE"},
		{name: "backend refuses", reply: proxytest.Reply{Status: 429, Header: http.Header{"Retry-After": {"7"}}, Body: `{"error":{"message":"slow down"}}`}, status: 429, source: "provider", message: `{"error":{"message":"slow down"}}`, fault: "the backend answered 429: slow down"},
		{name: "backend fails in text", reply: proxytest.Reply{Status: 500, ContentType: text, Body: "oops"}, status: 500, source: "provider", message: "oops", fault: "the backend answered 500"},
		{name: "garbage", reply: proxytest.Reply{Body: "{]"}, status: 200, message: "{]", fault: "not a JSON object"},
		{name: "garbage, streamed", reply: proxytest.Reply{ContentType: "text/event-stream", Body: "data: {\"a\"\n\nnonsense"}, status: 200, message: "data: {\"a\"\n\nnonsense", fault: "1 events"},
		{name: "bytes that are not text", reply: proxytest.Reply{Body: "{\"choices\":[{\"message\":{\"content\":\"\xff\"}}]}"}, status: 200, message: "\xff", fault: "not a JSON object"},
		{name: "empty", reply: proxytest.Reply{}, status: 200, fault: "the reply is empty"},
		{name: "broken off", reply: proxytest.Reply{Header: http.Header{"Content-Length": {"100"}}, Body: "{", Cut: true}, status: 502, source: "gateway", message: "broke off", fault: "broke off"},
		{name: "no reply", reply: proxytest.Reply{Status: -1}, status: 502, source: "gateway", message: "broke off", fault: "broke off"},
		{name: "too long to record", reply: proxytest.Reply{Body: `{"x":"` + strings.Repeat("y", 1000) + `"}`}, edit: func(c *proxy.Config) { c.MaxReplyBytes = 100 }, status: 200, message: "yyy\"}", fault: "longer than the 100 bytes"},
		{name: "encoded", reply: proxytest.Reply{Header: http.Header{"Content-Encoding": {"br"}}, Body: "zzz"}, status: 200, message: "zzz", fault: "encoded as br"},
		{name: "odd shapes", reply: proxytest.Reply{Body: `{"id":7,"model":null,"choices":{"a":1},"usage":[],"prompt_token_ids":"x","response_token_ids":[1,[2]]}`}, status: 200, message: `"choices"`, fault: "neither output nor an error"},
		{name: "odd choices", reply: proxytest.Reply{Body: `{"id":"","choices":[1,null,[],{"message":[],"logprobs":7,"token_ids":[1.5]},{"message":{"tool_calls":[3,{"function":null}]}}],"prompt_token_ids":[]}`}, status: 200, message: `"choices"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			backend := serve(t, func(context.Context, proxytest.Request) proxytest.Reply {
				if tt.reply.Status < 0 {
					panic(http.ErrAbortHandler)
				}
				return tt.reply
			})
			g := start(t, backend.BaseURL(), tt.edit)
			body := tt.body
			if body == "" {
				body = hello
			}
			r := post(t, g.URL+attemptPath, body)
			if r.status != tt.status || !strings.Contains(string(r.body), tt.message) {
				t.Errorf("got %d %s, want %d %s", r.status, r.body, tt.status, tt.message)
			}
			if got := r.header.Get(proxy.HeaderSource); got != tt.source {
				t.Errorf("source %q, want %q", got, tt.source)
			}
			if tt.source == proxy.SourceGateway {
				var e struct {
					Error struct {
						Message string `json:"message"`
						Type    string `json:"type"`
					} `json:"error"`
				}
				if err := json.Unmarshal(r.body, &e); err != nil || e.Error.Message == "" || e.Error.Type == "" {
					t.Errorf("not an OpenAI error: %s (%v)", r.body, err)
				}
			}
			if tt.reply.Header.Get("Retry-After") != r.header.Get("Retry-After") {
				t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
			}
			call := oneCall(t, g)
			switch {
			case tt.fault == "" && call.Status.Code != agl.StatusOK:
				t.Errorf("recorded as %+v", call.Status)
			case tt.fault != "" && (call.Status.Code != agl.StatusError || !strings.Contains(call.Status.Description.V, tt.fault)):
				t.Errorf("recorded as %+v, want an error with %q", call.Status, tt.fault)
			}
			if _, ok := call.Attributes.Get(agl.AttrResponseTokenIDs); ok {
				t.Errorf("token ids recorded: %s", call.Attributes)
			}
		})
	}
}

// A backend that breaks off in its stream breaks the agent's: nothing pretends
// that the reply is whole. What came is recorded.
func TestStreamBrokenOff(t *testing.T) {
	t.Parallel()
	backend := serve(t, func(ctx context.Context, r proxytest.Request) proxytest.Reply {
		reply := proxytest.VLLM(echo)(ctx, r)
		reply.Pieces, reply.Cut = reply.Pieces[:2], true
		return reply
	})
	g := start(t, backend.BaseURL(), nil)
	r, err := send(t.Context(), g.URL+attemptPath, strings.Replace(hello, `{`, `{"stream":true,`, 1))
	if err == nil {
		t.Errorf("the agent got a whole reply: %s", r.body)
	}
	if !strings.Contains(string(r.body), `"content":"H"`) {
		t.Errorf("the agent got %s", r.body)
	}
	call := oneCall(t, g)
	if call.Status.Code != agl.StatusError || attribute(t, &call, record.AttrDelivered) != "false" || attribute(t, &call, agl.AttrResponseTokenIDs) != "[72]" {
		t.Errorf("recorded as %+v %s", call.Status, call.Attributes)
	}
	if got := attribute(t, &call, record.AttrErrorSource); got != proxy.SourceProvider {
		t.Errorf("the fault is the %s's", got)
	}
}

// When the agent leaves, the backend's request ends too, and what came is on
// record as not delivered.
func TestAgentLeaves(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			t.Parallel()
			waiting := make(chan struct{})
			backend := serve(t, func(ctx context.Context, r proxytest.Request) proxytest.Reply {
				reply := proxytest.VLLM(echo)(ctx, r)
				if len(reply.Pieces) == 0 {
					reply.Pieces = []string{"", ""}
				}
				reply.Step = func(ctx context.Context, i int) error {
					if i < 2 && stream {
						return nil
					}
					close(waiting)
					<-ctx.Done()
					return ctx.Err()
				}
				return reply
			})
			g := start(t, backend.BaseURL(), nil)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			body := hello
			if stream {
				body = strings.Replace(hello, `{`, `{"stream":true,`, 1)
			}
			if stream {
				lines := bufio.NewScanner(open(ctx, t, g.URL+attemptPath, body))
				for lines.Scan() && !strings.Contains(lines.Text(), `"H"`) {
				}
				<-waiting
				leave()
			} else {
				left := make(chan error, 1)
				go func() {
					_, err := send(ctx, g.URL+attemptPath, body)
					left <- err
				}()
				<-waiting
				leave()
				if err := <-left; !errors.Is(err, context.Canceled) {
					t.Errorf("the agent's call ended with %v", err)
				}
			}
			<-backend.Gone()
			call := oneCall(t, g)
			if call.Status.Code != agl.StatusError || attribute(t, &call, record.AttrDelivered) != "false" {
				t.Errorf("recorded as %+v %s", call.Status, call.Attributes)
			}
			if got := attribute(t, &call, agl.AttrResponseTokenIDs); stream && got != "[72]" {
				t.Errorf("tokens %s, want the one that came", got)
			}
		})
	}
}

// A backend that says nothing is given up.
func TestBackendSilent(t *testing.T) {
	t.Parallel()
	backend := serve(t, func(ctx context.Context, _ proxytest.Request) proxytest.Reply {
		<-ctx.Done()
		return proxytest.Reply{}
	})
	g := start(t, backend.BaseURL(), func(c *proxy.Config) { c.IdleTimeout = time.Millisecond })
	r := post(t, g.URL+attemptPath, hello)
	if r.status != http.StatusGatewayTimeout || r.header.Get(proxy.HeaderSource) != proxy.SourceGateway {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if call := oneCall(t, g); !strings.Contains(call.Status.Description.V, "nothing for") {
		t.Errorf("recorded as %+v", call.Status)
	}
}

// A connection that the backend closed while it lay in the pool is replaced,
// and the agent notices nothing.
func TestStaleConnection(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	backend := serve(t, proxytest.VLLM(echo))
	g := start(t, backend.BaseURL(), nil)
	for range 20 {
		r := post(t, g.URL+attemptPath, hello)
		if r.status != 200 {
			t.Fatalf("call %d: %d %s", calls.Load(), r.status, r.body)
		}
		calls.Add(1)
		backend.CloseClientConnections()
	}
	if got := len(backend.Requests()); got != 20 {
		t.Errorf("the backend got %d requests for 20 calls", got)
	}
}

func TestHeadersAndKeys(t *testing.T) {
	t.Parallel()
	backend := serve(t, proxytest.VLLM(echo))
	g := start(t, backend.BaseURL(), func(c *proxy.Config) {
		c.Models = append(c.Models, proxy.Model{Name: "open", BaseURL: backend.BaseURL()})
		c.Models[0].APIKey = "env:KEY"
		c.LookupEnv = func(name string) (string, bool) { return "secret of " + name, true }
	})
	for model, want := range map[string]string{"m": "Bearer secret of KEY", "open": "Bearer agent"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+attemptPath, strings.NewReader(strings.Replace(hello, `"m"`, `"`+model+`"`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer agent")
		req.Header.Set("X-Session-Id", "s")
		req.Header.Set("Accept-Encoding", "gzip")
		req.Header.Set("Connection", "X-Hop")
		req.Header.Set("X-Hop", "1")
		barred := []string{"Cookie", "X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Real-Ip", "Openai-Organization", "Openai-Project", "Referer", "X-Unknown"}
		for _, name := range barred {
			req.Header.Set(name, "agent's")
		}
		barred = append(barred, "Origin")
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Origin", g.URL) // of another one, the proxy refuses the request itself
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		requests := backend.Requests()
		h := requests[len(requests)-1].Header
		if h.Get("Authorization") != want || h.Get("X-Session-Id") != "s" || h.Get("Accept-Encoding") != "identity" || h.Get("X-Hop") != "" || h.Get("Idempotency-Key") != "" {
			t.Errorf("%s: the backend got %v", model, h)
		}
		for _, name := range barred {
			if h.Get(name) != "" {
				t.Errorf("%s: the backend got %s: %s", model, name, h.Get(name))
			}
		}
	}
	flush(t, g)
	for _, s := range g.spans.stored {
		if strings.Contains(string(s.AppendJSON(nil)), "secret") {
			t.Errorf("a key is on record: %s", s.AppendJSON(nil))
		}
	}
}
