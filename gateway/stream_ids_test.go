package gateway_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl/gateway"
)

// usageOf is the event with the usage of chunks, which a backend sends before [DONE].
const usageOf = `data: {"id":"c","choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4}}` + "\n\n"

// A stream with the ids of only some of its tokens is recorded without any, also when its agent leaves at the finish reason:
// they are not what the model sampled.
func TestStreamLacksIDs(t *testing.T) {
	t.Parallel()
	const all, none = `"prompt_token_ids":[1,2],"response_token_ids":[3,4]`, `"prompt_token_ids":[],"response_token_ids":[]`
	for name, tt := range map[string]struct {
		without, leaves, want string
		usage                 string
	}{
		"all ids":               {"", "[DONE]", all, usageOf},
		"gaps":                  {`"token_ids":[4],`, "[DONE]", none, usageOf},
		"gaps, and leaves":      {`"token_ids":[4],`, `"finish_reason":"stop"`, none, usageOf},
		"leaves":                {"", `"finish_reason":"stop"`, all, usageOf},
		"leaves before a usage": {"", `"finish_reason":"stop"`, all, ": none\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pieces := strings.SplitAfter(strings.Replace(strings.Replace(chunks, tt.without, "", 1), "data: [DONE]", tt.usage+"data: [DONE]", 1), "\n\n")
				var asked, log bytes.Buffer
				c := open(t, gateway.Config{Model: "m", Streams: true, Logger: slog.New(slog.NewTextHandler(&log, nil)), Transport: transport(func(r *http.Request) (*http.Response, error) {
					_, err := asked.ReadFrom(r.Body)
					i := 0
					body := reader(func(p []byte) (int, error) {
						delay := 100 * time.Millisecond
						if i == len(pieces)-1 || i == 3 && strings.HasPrefix(tt.usage, ":") {
							delay = time.Hour // such a backend keeps its connection open
						}
						select {
						case <-r.Context().Done():
							return 0, context.Cause(r.Context())
						case <-time.After(delay):
							i++
							return copy(p, pieces[i-1]), nil
						}
					})
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body), ContentLength: -1}, err
				})})
				began, w := time.Now(), httptest.NewRecorder()
				c.streamUntil(t, w, tt.leaves)
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("the call ended after %s", took)
				}
				if strings.Contains(w.Body.String(), "usage") || !strings.Contains(asked.String(), `"stream_options":{"include_usage":true}`) {
					t.Errorf("the backend was asked %s, the agent got %s", &asked, w.Body)
				}
				if got := c.events("?format=triplet"); len(got) != 1 || !strings.Contains(got[0], tt.want) {
					t.Errorf("got %v, want %s", got, tt.want)
				}
				if warned := strings.Contains(log.String(), "leaves token ids out of its streams"); warned != (tt.want == none) {
					t.Errorf("the log is %s", &log)
				}
			})
		})
	}
}

// A stream is one whatever its Content-Type says.
func TestStreamOfAnotherType(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", "text/plain", "application/json"} {
		c := open(t, gateway.Config{Model: "m", Streams: true, Transport: transport(func(*http.Request) (*http.Response, error) { return answer(200, kind, chunks), nil })})
		c.create("r")
		c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://b/v1"}]`)
		if w := c.send("POST", chatPath, `{"stream":true}`); w.Code != 200 || w.Body.String() != chunks || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
			t.Errorf("%q: got %d %v %s", kind, w.Code, w.Header(), w.Body)
		}
		if got := c.events("?format=triplet"); len(got) != 1 || !strings.Contains(got[0], `"response_token_ids":[3,4]`) {
			t.Errorf("%q: got %v", kind, got)
		}
	}
}

// A reply that is encoded, although that was not asked for, cannot be recorded. The agent and the record say what is wrong.
func TestEncodedReply(t *testing.T) {
	t.Parallel()
	for kind, status := range map[string]int{"application/json": 200, "text/event-stream": 200, "text/plain": 401} {
		c := open(t, gateway.Config{Model: "m", Streams: true, Transport: transport(func(r *http.Request) (*http.Response, error) {
			if got := r.Header.Get("Accept-Encoding"); got != "identity" {
				t.Errorf("Accept-Encoding is %q", got)
			}
			res := answer(status, kind, "\x1f\x8b")
			res.Header.Set("Content-Encoding", "gzip")
			return res, nil
		})})
		c.create("r")
		c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://b/v1"}]`)
		if w := c.send("POST", chatPath, `{"stream":true}`); w.Code != map[int]int{200: 502, 401: 401}[status] || !strings.Contains(w.Body.String(), "encoded as gzip") {
			t.Errorf("%s: got %d %s", kind, w.Code, w.Body)
		}
		if got := c.events(""); len(got) != 1 || !strings.Contains(got[0], "encoded as gzip") || !strings.Contains(got[0], `"status":"error"`) {
			t.Errorf("%s: got %v", kind, got)
		}
	}
}

// An error with the status 200 is a failed call on record, too.
func TestErrorWithStatus200(t *testing.T) {
	t.Parallel()
	const failure = `{"error":{"message":"no memory"}}`
	c := open(t, gateway.Config{Model: "m", Transport: transport(func(*http.Request) (*http.Response, error) { return answer(200, "application/json", failure), nil })})
	c.create("r")
	c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://b/v1"}]`)
	if w := c.send("POST", chatPath, `{}`); w.Code != 200 || w.Body.String() != failure {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if got := c.events(""); len(got) != 1 || !strings.Contains(got[0], `"status":"error"`) || !strings.Contains(got[0], failure) {
		t.Errorf("got %v", got)
	}
}
