package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/gateway"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// chunks is a stream as vLLM sends it.
const chunks = `data: {"id":"c","prompt_token_ids":[1,2],"choices":[{"index":0,"delta":{"role":"assistant","content":"h"},"token_ids":[3],"logprobs":{"content":[{"logprob":-1}]}}]}

data: {"id":"c","choices":[{"index":0,"delta":{"content":"i"},"token_ids":[4],"logprobs":{"content":[{"logprob":-2}]},"finish_reason":"stop"}]}

data: [DONE]

`

func TestStream(t *testing.T) {
	t.Parallel()
	reply := chunks
	c := open(t, gateway.Config{Model: "m", Streams: true, Transport: transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(reply)), ContentLength: -1}, nil
	})})
	c.create("r")
	c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://b/v1"}]`)
	w := c.send("POST", chatPath, `{"stream":true}`)
	if w.Code != 200 || w.Body.String() != chunks || w.Header().Get("Content-Type") != "text/event-stream; charset=utf-8" || w.Header().Get("X-Accel-Buffering") != "no" {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	want := `{"prompt_token_ids":[1,2],"response_token_ids":[3,4],"response_log_probs":[-1,-2],"server":{"model":"m","version":0},"http_status":200,"status":"ok"}`
	if got := c.events("?format=triplet"); len(got) != 1 || got[0] != want {
		t.Errorf("triplet: got %v, want %s", got, want)
	}
	// A stream with an error, or with an event that is no JSON, ends as it is, and its record says that the call failed.
	for _, event := range []string{`{"error":{"message":"out of memory"}}`, `{"choices":[`} {
		reply = strings.Replace(chunks, "data: [DONE]", "data: "+event+"\n\ndata: [DONE]", 1)
		if w := c.send("POST", chatPath, `{"stream":true}`); w.Code != 200 || w.Body.String() != reply {
			t.Errorf("%s: got %d %s", event, w.Code, w.Body)
		}
		if got := c.events("?dedupe=none"); !strings.Contains(got[len(got)-1], `"http_status":200,"status":"error"`) {
			t.Errorf("%s: got %s", event, got)
		}
	}
	// Some backends send no [DONE], or no blank line at the end: the finish reason of each choice is enough, as for the proxy.
	for _, end := range []string{"", "data: [DONE]"} {
		reply, _, _ = strings.Cut(chunks, "data: [DONE]")
		reply += end
		if w := c.send("POST", chatPath, `{"stream":true}`); w.Code != 200 || w.Body.String() != reply {
			t.Errorf("with %q at the end: got %d %s", end, w.Code, w.Body)
		}
		if got := c.events("?dedupe=none"); !strings.Contains(got[len(got)-1], `"http_status":200,"status":"ok"`) {
			t.Errorf("with %q at the end: got %s", end, got)
		}
	}
	// A stream that breaks off breaks off for the agent, too, and is not recorded.
	reply, _, _ = strings.Cut(chunks, "data: [DONE]")
	reply = strings.Replace(reply, `"stop"`, "null", 1)
	func() {
		defer func() {
			if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // it is a panic's value
				t.Errorf("a broken stream: got panic %v", v)
			}
		}()
		c.send("POST", chatPath, `{"stream":true}`)
	}()
	if got := c.events(""); len(got) != 5 {
		t.Errorf("after a broken stream: got %d events", len(got))
	}
	c.want("GET", "/proxy/state", "", 200, `{"paused":false,"retry_after_seconds":5,"reason":null,"inflight":0}`)
}

// leaver is an agent that leaves when it has read something.
type leaver struct {
	*httptest.ResponseRecorder

	when  string
	leave func()
}

func (l *leaver) Flush() {
	if strings.Contains(l.Body.String(), l.when) {
		l.leave()
	}
}

// streamUntil asks for a stream, and leaves when it has read something.
func (c *client) streamUntil(t *testing.T, w *httptest.ResponseRecorder, when string) {
	t.Helper()
	c.create("r")
	c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://b/v1"}]`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, chatPath, strings.NewReader(`{"stream":true}`))
	r.Header.Set("Content-Type", "application/json")
	c.handler.ServeHTTP(&leaver{w, when, cancel}, r)
}

// An agent that stops reading at the finish reason has had the whole reply, and the call is recorded; one that leaves before has not.
func TestLeavesAtTheFinishReason(t *testing.T) {
	t.Parallel()
	for when, want := range map[string]int{`"finish_reason":"stop"`: 1, `"content":"h"`: 0} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			c := open(t, gateway.Config{Model: "m", Streams: true, Transport: transport(func(r *http.Request) (*http.Response, error) {
				events, sent := strings.SplitAfter(chunks, "\n\n"), 0
				body := reader(func(p []byte) (int, error) {
					if sent == 2 {
						<-r.Context().Done()
					}
					if err := context.Cause(r.Context()); err != nil {
						return 0, err
					}
					sent++
					return copy(p, events[sent-1]), nil
				})
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body), ContentLength: -1}, nil
			})})
			func() {
				defer func() { _ = recover() }() // the connection is closed
				c.streamUntil(t, httptest.NewRecorder(), when)
			}()
			if got := c.events("?format=triplet"); len(got) != want || want > 0 && !strings.Contains(got[0], `"response_token_ids":[3,4]`) {
				t.Errorf("got %v, want %d events", got, want)
			}
		})
	}
}

type reader func(p []byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

// The limit of a reply is that of an event, too, whose end has not come.
func TestLongEvent(t *testing.T) {
	t.Parallel()
	reply := strings.NewReader("data: " + strings.Repeat("x", 1<<20))
	c := open(t, gateway.Config{Model: "m", Streams: true, MaxBodyBytes: 1 << 10, Transport: transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(reply), ContentLength: -1}, nil
	})})
	c.create("r")
	c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://b/v1"}]`)
	func() {
		defer func() { _ = recover() }() // the connection is closed
		c.send("POST", chatPath, `{"stream":true}`)
	}()
	if read := reply.Size() - int64(reply.Len()); read > 64<<10 {
		t.Errorf("%d bytes of one event were kept, more than the limit allows", read)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"rollout": "/api/rollouts/r?wait=", "log": "/api/rollouts/terminal?after=0&wait="} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A store's goroutines must begin and end in the bubble of the test's clock.
			synctest.Test(t, func(t *testing.T) {
				g, err := gateway.New(gateway.Config{Store: memorytest.Open(t)})
				if err != nil {
					t.Fatal(err)
				}
				if err := g.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				c := &client{t, g}
				c.create("r", "s")
				ended := func(body string) bool { return strings.Contains(body, `"succeeded"`) }
				start := time.Now()
				if body := c.must("GET", path+"2.5", ""); ended(string(body)) || time.Since(start) != 2500*time.Millisecond {
					t.Errorf("nothing ends: got %s after %s", body, time.Since(start))
				}
				start = time.Now()
				answered := make(chan string, 1)
				go func() { answered <- string(c.must("GET", path+"60", "")) }()
				time.Sleep(time.Second)
				c.finish("r")
				if body := <-answered; !ended(body) || time.Since(start) != time.Second {
					t.Errorf("got %s after %s", body, time.Since(start))
				}
				go func() {
					answered <- string(c.must("GET", strings.NewReplacer("/r?", "/s?", "after=0", "after=1").Replace(path)+"60", ""))
				}()
				synctest.Wait()
				g.Drain()
				if body := <-answered; ended(body) {
					t.Errorf("a draining server: got %s", body)
				}
			})
		})
	}
	c := open(t, gateway.Config{})
	c.create("r")
	for _, wrong := range []string{"x", "-1", "61", "NaN"} {
		if w := c.send("GET", "/api/rollouts/r?wait="+wrong, ""); w.Code != 422 {
			t.Errorf("wait=%s: got %d", wrong, w.Code)
		}
	}
}

// The key of a rollout opens what its agent needs, and nothing else.
func TestRolloutKey(t *testing.T) {
	t.Parallel()
	c := open(t, gateway.Config{Key: "secret"})
	own := ""
	ask := func(key, method, path, body string) int {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, r)
		if raw, ok := rawjson.Get(w.Body.Bytes(), "key"); ok {
			key = rawjson.Unquote(raw)
		}
		if path == "/api/rollouts/a/key" && w.Code == 200 {
			own = key
		}
		return w.Code
	}
	ask("secret", "POST", "/api/rollouts", `[{"input":1,"rollout_id":"a"},{"input":1,"rollout_id":"b"},{"input":1,"rollout_id":"a/x"},{"input":1,"rollout_id":"a/attempt"}]`)
	if code := ask("secret", "GET", "/api/rollouts/a/key", ""); code != 200 {
		t.Fatalf("key: got %d", code)
	}
	for request, want := range map[string]int{
		"GET /api/rollouts/a": 200, "POST /api/rollouts/a/attempt/0/events": 200, "POST /proxy/rollout/a/attempt/0/mode/train/openai/v1/chat/completions": 503,
		"POST /api/rollouts/a%2Fattempt/cancel": 401, "GET /api/rollouts/a%2Fx": 401, "POST /api/rollouts/a%2Fattempt/attempt/0/events": 401,
		"POST /proxy/rollout/a%2Fx/attempt/0/mode/train/openai/v1/chat/completions": 401, "POST /api/rollouts/a/cancel": 401,
		"GET /api/rollouts/b": 401, "POST /api/rollouts/b/attempt/0/events": 401, "POST /proxy/rollout/b/attempt/0/mode/train/openai/v1/chat/completions": 401,
		"DELETE /api/rollouts/a": 401, "PATCH /api/rollouts/a": 401, "GET /api/rollouts/a/events": 401, "GET /api/rollouts/a/key": 401, "POST /api/rollouts": 401,
		"GET /api/rollouts/terminal": 401, "DELETE /api/models": 401, "POST /proxy/pause": 401, "GET /proxy/state": 401,
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := ask(own, method, path, `{"event_type":"x"}`); got != want {
			t.Errorf("%s: got %d, want %d", request, got, want)
		}
	}
	if got := ask(own+"x", "GET", "/api/rollouts/a", ""); got != 401 {
		t.Errorf("another key: got %d", got)
	}
	c = open(t, gateway.Config{})
	c.create("a")
	c.want("GET", "/api/rollouts/a/key", "", 409, fmt.Sprintf(`{"detail":%q}`, "The server has no key, and needs none"))
}

// Siblings are in one group for those who look into the store, and are shown to the trainer as it sent them.
func TestGroups(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	c := open(t, gateway.Config{Store: store})
	made := c.send("POST", "/api/rollouts", `[{"input":{"data_id":"a"},"rollout_id":"1"},{"input":{"data_id":"a"},"rollout_id":"2","metadata":{"k":1}},{"input":"alone","rollout_id":"3"}]`)
	if made.Code != http.StatusCreated || strings.Contains(made.Body.String(), "agl.group") {
		t.Errorf("created: got %d %s", made.Code, made.Body)
	}
	c.send("POST", "/api/rollouts", `[{"input":{"data_id":"a"},"rollout_id":"4"}]`)
	for id, want := range map[string]string{"1": `"1"`, "2": `"1"`, "3": "", "4": ""} {
		stored, err := store.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: id})
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := rawjson.Get(stored.Metadata, "agl.group"); string(got) != want {
			t.Errorf("rollout %s: got group %s, want %q", id, got, want)
		}
	}
	if got := c.send("GET", "/api/rollouts/2", "").Body.String(); strings.Contains(got, "agl.group") || !strings.Contains(got, `"metadata":{"batch_idx":null,"sample_idx_in_batch":null,"k":1}`) {
		t.Errorf("got %s", got)
	}
	if w := c.send("POST", "/api/rollouts", `[{"input":1,"metadata":{"agl.group":"x"}}]`); w.Code != 422 {
		t.Errorf("a group of the client's: got %d %s", w.Code, w.Body)
	}
}
