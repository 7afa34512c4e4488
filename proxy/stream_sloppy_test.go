package proxy_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
)

const (
	askResponse   = `{"model":"m","input":"hi"}`
	responsesPath = "/rollout/ro-1/attempt/at-1/v1/responses"
)

// said are whole streams that say "hi", by the API of their backend.
var said = map[string]string{ //nolint:gochecknoglobals // a table of the test
	"chat": strings.Join(chatEvents(`{"index":0,"delta":{"role":"assistant","content":"h"},"token_ids":[7]}`, `{"index":0,"delta":{"content":"i"},"token_ids":[8],"finish_reason":"stop"}`), ""),
	"messages": messageStart + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}` + "\n\n" +
		`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n",
	"responses": `data: {"type":"response.created","response":{"id":"c-1","status":"in_progress","output":[]}}` + "\n\n" +
		`data: {"type":"response.completed","response":{"id":"c-1","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}]}}` + "\n\n",
}

// frontsOf are the calls of each API that a backend answers.
var frontsOf = map[string]map[string]string{ //nolint:gochecknoglobals // a table of the test
	"chat":      {attemptPath: hello, messagesPath: askMessage, responsesPath: askResponse},
	"messages":  {attemptPath: hello, messagesPath: askMessage, responsesPath: askResponse},
	"responses": {responsesPath: askResponse},
}

func backendOf(api string) func(c *proxy.Config) {
	return func(c *proxy.Config) {
		c.Models[0].TextOnly = api == "responses"
		if api == "messages" {
			c.Models[0].API = proxy.APIAnthropic
		}
	}
}

// Servers keep connections open with events that say nothing. They mark no call failed, and begin no reply of their own.
func TestBlankEvents(t *testing.T) {
	t.Parallel()
	for api, stream := range said {
		for path, body := range frontsOf[api] {
			for _, blank := range []string{"data: null\n\n", "event: ping\ndata: {}\n\n", "event: ping\ndata: alive\n\n", "data: 1\nevent:ping\n\n", "data:\n\n", "data:  \n\n"} {
				t.Run(fmt.Sprintf("%s%s%q", api, path, blank), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						p, store := plugged(t, func(*http.Request) (*http.Response, error) {
							return inPieces(blank+strings.ReplaceAll(stream, "\n\n", "\n\n"+blank), 1<<20), nil
						}, backendOf(api), "backend")
						w, broken := cutOff(t, p, path, streamed(body))
						closed(t, p)
						if broken || strings.Contains(w.Body.String(), "unknown") {
							t.Errorf("broken off: %v, the agent got %s", broken, w.Body)
						}
						calls := store.calls()
						if len(calls) != 1 || calls[0].Status.Code != agl.StatusOK || attribute(t, &calls[0], "gen_ai.completion.0.content") != "hi" {
							t.Errorf("recorded as %+v", calls)
						}
					})
				})
			}
		}
	}
}

// A stream is one whatever its Content-Type says: it is relayed as it comes, without what the agent did not ask for, and recorded.
func TestStreamOfAnotherType(t *testing.T) {
	t.Parallel()
	for api, stream := range said {
		for path, body := range frontsOf[api] {
			for _, kind := range []string{"", "text/plain; charset=utf-8", "application/json"} {
				t.Run(api+path+" "+kind, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						pieces := strings.SplitAfter("\n: hello\n\n"+stream, "\n\n")
						p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
							res := events(r, func(i int) string { return pieces[i] }) // one a second
							res.Header = http.Header{}
							if kind != "" {
								res.Header.Set("Content-Type", kind)
							}
							return res, nil
						}, backendOf(api), "backend")
						began := time.Now()
						w := &firstFlush{ResponseRecorder: httptest.NewRecorder()}
						p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(streamed(body))))
						if first := w.at.Sub(began); first > 2*time.Second {
							t.Errorf("the first piece came after %s", first)
						}
						if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") || strings.Contains(w.Body.String(), "token_ids") {
							t.Errorf("the agent got %s: %s", got, w.Body)
						}
						closed(t, p)
						calls := store.calls()
						if len(calls) != 1 || calls[0].Status.Code != agl.StatusOK || attribute(t, &calls[0], "gen_ai.completion.0.content") != "hi" {
							t.Errorf("recorded as %+v", calls)
						}
					})
				})
			}
		}
	}
}

// firstFlush notes when an agent gets the first piece of a reply.
type firstFlush struct {
	*httptest.ResponseRecorder

	at time.Time
}

func (f *firstFlush) Flush() {
	if f.at.IsZero() {
		f.at = time.Now()
	}
}

// What does not begin as a stream is none, and arrives whole.
func TestNoStream(t *testing.T) {
	t.Parallel()
	whole := completion("c", []int{1}, []int{2})
	for name, body := range map[string]string{"a completion": whole, "after blank lines": "\n\n\n" + whole, "a text": "data without a colon", "nothing": "", "blank": strings.Repeat("\n", 100), "a part of a name": "event"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, _ := plugged(t, func(*http.Request) (*http.Response, error) {
					return respond(200, http.Header{"Content-Type": {"text/plain"}}, body), nil
				}, func(c *proxy.Config) { c.Models[0].TextOnly = true }, "backend")
				w := ask(t.Context(), p, attemptPath, streamed(hello), nil)
				if w.Body.String() != body || w.Header().Get("Content-Type") != "text/plain" {
					t.Errorf("got %s %s", w.Header().Get("Content-Type"), w.Body)
				}
				closed(t, p)
			})
		})
	}
}

// A backend that encodes its replies unasked is named once in the log, with what to do.
func TestEncodedRepliesAreNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		p, store := plugged(t, func(*http.Request) (*http.Response, error) {
			return respond(200, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"br"}}, "z"), nil
		}, func(c *proxy.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, "backend")
		for range 2 {
			if w := ask(t.Context(), p, attemptPath, hello, nil); w.Body.String() != "z" || w.Header().Get("Content-Encoding") != "br" {
				t.Errorf("got %v %s", w.Header(), w.Body)
			}
		}
		closed(t, p)
		if strings.Count(log.String(), "switch its compression off") != 1 || len(store.calls()) != 2 {
			t.Errorf("%d calls, and the log is %s", len(store.calls()), &log)
		}
		log.Reset()
		p, _ = plugged(t, func(*http.Request) (*http.Response, error) {
			return respond(200, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"br"}}, "z"), nil
		}, func(c *proxy.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, "backend")
		if w := ask(t.Context(), p, "/v1/messages", `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`, nil); w.Code != http.StatusBadGateway {
			t.Errorf("translated: got %d %s", w.Code, w.Body)
		}
		closed(t, p)
		if strings.Count(log.String(), "switch its compression off") != 1 {
			t.Errorf("where it is translated, the log is %s", &log)
		}
	})
}
