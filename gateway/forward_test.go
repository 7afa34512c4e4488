package gateway_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/gateway"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// transport is a backend in memory.
type transport func(r *http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, kind, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}, "X-Secret": {"1"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

const chatPath = "/proxy/rollout/r/attempt/0/mode/train/openai/v1/chat/completions"

func TestForward(t *testing.T) {
	t.Parallel()
	var asked []string
	reply := answer
	c := open(t, gateway.Config{Model: "m", RoutedExperts: true, Transport: transport(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		asked = append(asked, r.URL.String()+" "+string(body))
		if r.Header.Get("Authorization") != "" {
			t.Error("a header of the agent has reached the backend")
		}
		return reply(200, "application/json", `{"id":"c1","prompt_token_ids":[1,2],"choices":[{"token_ids":[3],"routed_experts":[[7]],"finish_reason":"stop","logprobs":{"content":[{"logprob":-0.5}]},"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":2}}`), err
	})})
	c.create("r")
	c.want("POST", chatPath, `{}`, 503, `{"detail":"No servers available for model 'm'"}`)
	c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://b/v1/","version":4},{"model":"other","endpoint":"http://c"}]`)
	c.want("POST", chatPath, `{"stream":true}`, 400, `{"detail":"Streaming responses are not supported"}`)
	c.want("POST", chatPath, `{"temperature":2,"messages":[],"model":"gpt"}`, 200, `{"id":"c1","prompt_token_ids":[1,2],"choices":[{"token_ids":[3],"finish_reason":"stop","logprobs":{"content":[{"logprob":-0.5}]},"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":2}}`)
	c.must("POST", strings.ReplaceAll(chatPath, "train", "val"), "")
	reply = func(int, string, string) *http.Response {
		return answer(400, "application/json", `{"error":{"message":"too long"}}`)
	}
	c.want("POST", chatPath, `{}`, 400, `{"error":{"message":"too long"}}`)
	reply = func(int, string, string) *http.Response { return answer(200, "text/html", `<p>`) }
	c.want("POST", chatPath, `{}`, 200, `{}`)
	reply = func(int, string, string) *http.Response { return answer(200, "application/json", `[-Infinity`) }
	c.want("POST", chatPath, `{}`, 502, `{"error":{"message":"The reply of the model server is not a JSON object"}}`)
	const train = `http://b/v1/chat/completions {"model":"m","temperature":1.0,"return_token_ids":true,"logprobs":true,"return_routed_experts":true}`
	for i, want := range []string{
		`http://b/v1/chat/completions {"temperature":1.0,"messages":[],"model":"m","return_token_ids":true,"logprobs":true,"return_routed_experts":true}`,
		`http://b/v1/chat/completions {"model":"m","temperature":0.7,"return_token_ids":true}`, train, train, train,
	} {
		if asked[i] != want {
			t.Errorf("request %d: got %s, want %s", i, asked[i], want)
		}
	}
	latency := regexp.MustCompile(`"latency_ms":[0-9.]+`)
	first := latency.ReplaceAllString(c.events("")[1], `"latency_ms":L`)
	want := `{"model":"m","model_version":4,"request":{"model":"m","temperature":0.7,"return_token_ids":true},` +
		`"response":{"id":"c1","prompt_token_ids":[1,2],"choices":[{"token_ids":[3],"finish_reason":"stop","logprobs":{"content":[{"logprob":-0.5}]},"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":2}},` +
		`"server":{"model":"m","endpoint":"http://b/v1/","version":4},"latency_ms":L,"http_status":200,"status":"ok","retry_count":0,"routed_experts":[[7]],"usage":{"prompt_tokens":2},"finish_reason":"stop"}`
	if first != want {
		t.Errorf("event:\n got %s\nwant %s", first, want)
	}
	const server = `"server":{"model":"m","version":4}`
	triplets := strings.Join(c.events("?format=triplet"), "\n")
	want = `{"prompt_token_ids":[1,2],"response_token_ids":[3],"response_log_probs":[-0.5],` + server + `,"routed_experts":[[7]],"http_status":200,"status":"ok"}
{"prompt_token_ids":[],"response_token_ids":[],"response_log_probs":null,` + server + `,"http_status":400,"status":"error","error":{"message":"too long"}}
{"prompt_token_ids":[],"response_token_ids":[],"response_log_probs":null,` + server + `,"http_status":200,"status":"ok"}
{"prompt_token_ids":[],"response_token_ids":[],"response_log_probs":null,` + server + `,"http_status":502,"status":"error","error":{"message":"The reply of the model server is not a JSON object"}}`
	if triplets != want {
		t.Errorf("triplets:\n got %s\nwant %s", triplets, want)
	}
	if all := c.events("?format=triplet&dedupe=none&include_routed_experts=false"); len(all) != 5 || strings.Contains(strings.Join(all, ""), "routed") {
		t.Errorf("all triplets: got %v", all)
	}
}

// The span of a call has what our own adapters and pages read.
func TestSpan(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	c := open(t, gateway.Config{Store: s, Model: "m", Transport: transport(func(*http.Request) (*http.Response, error) {
		return answer(200, "application/json", `{"id":"c1","prompt_token_ids":[1,2],"choices":[{"token_ids":[3],"message":{"role":"assistant","content":"hi"}}]}`), nil
	})})
	c.create("r")
	c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://b/v1","version":4}]`)
	c.must("POST", chatPath, `{"messages":[{"role":"user","content":"hey"}]}`)
	// The trainer gives no version, but registers its models after each step.
	c.must("DELETE", "/api/models", "")
	c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://b/v1"}]`)
	c.must("POST", chatPath, `{}`)
	page, err := s.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: "r"})
	if err != nil || len(page.Items) != 2 {
		t.Fatalf("got %v and %v", page.Items, err)
	}
	if got, _ := rawjson.Get(jsontext.Value(page.Items[1].Attributes), agl.AttrModelVersion); string(got) != `"2"` {
		t.Errorf("the version of the second registration: got %s", got)
	}
	if data := c.events("?format=triplet&dedupe=none"); len(data) != 2 || !strings.Contains(data[1], `"version":0}`) {
		t.Errorf("the trainer's version: got %v", data)
	}
	span := page.Items[0]
	if span.Name != agl.SpanLiteLLMRequest {
		t.Errorf("name: got %s", span.Name)
	}
	for key, want := range map[string]string{agl.AttrPromptTokenIDs: `[1,2]`, agl.AttrResponseTokenIDs: `[3]`, agl.AttrModelVersion: `"4"`, "gen_ai.completion.0.content": `"hi"`, "gen_ai.prompt.0.content": `"hey"`} {
		if got, _ := rawjson.Get(jsontext.Value(span.Attributes), key); string(got) != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		faults []any // statuses, or errors
		status int
		body   string
		events int
		least  time.Duration
	}{
		"the last status":     {[]any{500, 503, 429, 408, 409, 500}, 500, `{"n":6}`, 1, 11 * time.Second},
		"the third try":       {[]any{500, io.ErrUnexpectedEOF, 200}, 200, `{"n":3}`, 1, time.Second},
		"a fault of the call": {[]any{400}, 400, `{"n":1}`, 1, 0},
		"a redirect":          {[]any{302}, 302, `{"n":1}`, 1, 0},
		"no status":           {[]any{42, 101, 999, 200}, 200, `{"n":4}`, 1, 2600 * time.Millisecond},
		"no connection":       {[]any{io.EOF, io.EOF, io.EOF, io.EOF, io.EOF, io.EOF}, 502, `{"detail":"Upstream model server request failed"}`, 0, 11 * time.Second},
		"silence":             {[]any{nil, nil, nil, nil, nil, nil}, 504, `{"detail":"Upstream model server timed out"}`, 0, 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := 0
				c := open(t, gateway.Config{Model: "m", Transport: transport(func(r *http.Request) (*http.Response, error) {
					fault := x.faults[n]
					n++
					switch fault := fault.(type) {
					case int:
						return answer(fault, "application/json", fmt.Sprintf(`{"n":%d}`, n)), nil
					case error:
						return nil, fault
					default:
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
				})})
				c.create("r")
				c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://b"}]`)
				start := time.Now()
				c.want("POST", chatPath, `{}`, x.status, x.body)
				if took := time.Since(start); took < x.least || took > 2*x.least+time.Second {
					t.Errorf("took %s, want at least %s", took, x.least)
				}
				data := c.events("")
				if len(data) != x.events || n != len(x.faults) {
					t.Errorf("got %d events and %d tries", len(data), n)
				}
				state := "ok"
				if x.status >= 300 {
					state = "error"
				}
				if x.events > 0 && !strings.Contains(data[0], fmt.Sprintf(`"status":"%s","retry_count":%d,`, state, n-1)) {
					t.Errorf("got %s", data[0])
				}
			})
		})
	}
}

// While paused, calls are refused and those that run are counted. A call whose agent
// leaves, or whose rollout is deleted, ends and is not recorded.
func TestPauseAndLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := open(t, gateway.Config{Model: "m", Transport: transport(func(r *http.Request) (*http.Response, error) {
			select {
			case <-release:
				return answer(200, "application/json", `{}`), nil
			case <-r.Context().Done():
				return nil, context.Cause(r.Context())
			}
		})})
		c.create("r", "gone")
		c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://b"}]`)
		var wait sync.WaitGroup
		var codes [2]int
		for i, id := range []string{"r", "gone"} {
			wait.Go(func() { codes[i] = c.send("POST", strings.Replace(chatPath, "/r/", "/"+id+"/", 1), `{}`).Code })
		}
		left, leave := context.WithCancel(t.Context())
		wait.Go(func() {
			r := httptest.NewRequestWithContext(left, http.MethodPost, chatPath, http.NoBody)
			c.handler.ServeHTTP(httptest.NewRecorder(), r)
		})
		synctest.Wait()
		c.want("POST", "/proxy/pause", `{}`, 200, `{"paused":true,"retry_after_seconds":5,"reason":null,"inflight":3}`)
		w := c.send("POST", chatPath, `{}`)
		if w.Code != 429 || w.Header().Get("Retry-After") != "5" || w.Header().Get("X-Agl-Paused") != "true" || w.Body.String() != `{"error":"gateway paused","reason":null}` {
			t.Errorf("paused: got %d %v %s", w.Code, w.Header(), w.Body)
		}
		leave()
		synctest.Wait()
		c.want("GET", "/proxy/state", "", 200, `{"paused":true,"retry_after_seconds":5,"reason":null,"inflight":2}`)
		c.must("DELETE", "/api/rollouts/gone", "")
		close(release)
		wait.Wait()
		if codes != [2]int{200, 404} {
			t.Errorf("codes: got %v", codes)
		}
		c.want("GET", "/proxy/state", "", 200, `{"paused":true,"retry_after_seconds":5,"reason":null,"inflight":0}`)
		if data := c.events(""); len(data) != 1 {
			t.Errorf("events: got %v", data)
		}
	})
}

// What the backend sends must reach the agent and the record, whatever it is.
func TestBadReplies(t *testing.T) {
	t.Parallel()
	body := ""
	c := open(t, gateway.Config{Model: "m", MaxBodyBytes: 1000, Transport: transport(func(*http.Request) (*http.Response, error) {
		return answer(200, "application/json", body), nil
	})})
	c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://a"}]`)
	c.create("r")
	for i, x := range []struct {
		body   string
		status int
		want   string
	}{
		{"{\"a\":\"\xff\"}", 200, "{\"a\":\"\ufffd\"}"},
		{`{"a":-Infinity}`, 502, `{"error":{"message":"The reply of the model server is not a JSON object"}}`},
		{`{"a":"` + strings.Repeat("x", 1000) + `"}`, 502, `{"error":{"message":"The reply of the model server is too long"}}`},
	} {
		body = x.body
		c.want("POST", "/proxy/rollout/r/attempt/0/mode/train/openai/v1/chat/completions", "{}", x.status, x.want)
		if data := c.events(""); len(data) != i+1 || !strings.Contains(data[i], `"response":`+x.want) {
			t.Errorf("events after %.20s: got %s", x.body, data)
		}
	}
	c.want("POST", "/proxy/rollout/r/attempt/0/mode/train/openai/v1/chat/completions", "{\"a\":\"\xff\"}", 400, `{"detail":"Invalid JSON in request body"}`)
}

// A backend that announces a reply larger than any memory has the reply that it sends.
func TestAnnouncedLength(t *testing.T) {
	t.Parallel()
	c := open(t, gateway.Config{Model: "m", Transport: transport(func(*http.Request) (*http.Response, error) {
		got := answer(200, "application/json", `{"id":"c1"}`)
		got.ContentLength = math.MaxInt64
		return got, nil
	})})
	c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://a"}]`)
	c.create("r")
	c.want("POST", chatPath, "{}", 200, `{"id":"c1"}`)
}

// The pinned endpoint is that of the original: sha256 of the id, over the sorted list.
func TestPinned(t *testing.T) {
	t.Parallel()
	used := map[string]string{}
	c := open(t, gateway.Config{Model: "m", Transport: transport(func(r *http.Request) (*http.Response, error) {
		return answer(200, "application/json", fmt.Sprintf(`{"host":%q}`, r.URL.Host)), nil
	})})
	c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://c"},{"model":"m","endpoint":"http://a"},{"model":"m","endpoint":"http://b"}]`)
	for _, id := range []string{"r0", "r1", "r2", "r3"} {
		c.create(id)
		for range 2 {
			host, _ := rawjson.Get(c.must("POST", "/proxy/rollout/"+id+"/attempt/0/mode/val/openai/v1/completions", "{}"), "host")
			used[id] += string(host)
		}
	}
	// python3: int.from_bytes(hashlib.sha256(id.encode()).digest()[:8], "big") % 3
	for id, want := range map[string]string{"r0": "b", "r1": "c", "r2": "b", "r3": "b"} {
		if used[id] != `"`+want+`""`+want+`"` {
			t.Errorf("%s: got %s, want %s twice", id, used[id], want)
		}
	}
}
