package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/record"
)

// leaver is an agent that leaves as soon as it has read something.
type leaver struct {
	*httptest.ResponseRecorder

	when  string
	leave func()
}

// Flush implements [http.Flusher].
func (l *leaver) Flush() {
	if strings.Contains(l.Body.String(), l.when) {
		l.leave()
	}
}

// leaves serves an agent that leaves as soon as it has read something of a stream, and returns its call.
func leaves(t *testing.T, when string, stream []string) (broken bool, call agl.Span) {
	t.Helper()
	p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
		return events(r, func(i int) string {
			if i < len(stream) {
				return stream[i]
			}
			<-r.Context().Done()
			return ": the end\n\n"
		}), nil
	}, nil, "backend")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, attemptPath, strings.NewReader(streamed(hello)))
	broken = aborts(func() { p.ServeHTTP(&leaver{httptest.NewRecorder(), when, cancel}, r) })
	if err := p.Flush(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	closed(t, p)
	calls := store.calls()
	if len(calls) != 1 {
		t.Fatalf("recorded as %+v", calls)
	}
	return broken, calls[0]
}

// An agent that leaves with the event that ends a stream, or with the finish reason of each choice, has all of the reply,
// though the backend has not closed it; one that leaves before has not.
func TestLeavesAtTheEnd(t *testing.T) {
	t.Parallel()
	one := []string{runaway["chat"](0), "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", "data: [DONE]\n\n"}
	choices := chatEvents(`{"index":0,"delta":{"content":"one"},"finish_reason":"stop"}`, `{"index":1,"delta":{"content":"two"}}`,
		`{"index":1,"delta":{"content":"three"}}`, `{"index":1,"delta":{},"finish_reason":"length"}`)
	for _, c := range []struct {
		when   string
		stream []string
		whole  bool
	}{
		{"data: [DONE]\n\n", one, true},
		{`"finish_reason":"stop"`, one, true},
		{`"finish_reason":null`, one, false},
		{`"finish_reason":"length"`, choices, true},
		{"three", choices, false},
		{"two", choices, false},
		{"one", choices, false},
	} {
		t.Run(c.when, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				broken, call := leaves(t, c.when, c.stream)
				if delivered := attribute(t, &call, record.AttrDelivered); broken == c.whole || (call.Status.Code == agl.StatusOK) != c.whole || (delivered == "true") != c.whole {
					t.Errorf("broken off: %v, recorded as %+v", broken, call)
				}
			})
		})
	}
}

// The usage of a stream whose agent leaves at the finish reason is awaited: without it, a call with the ids of only some of its
// tokens would be trained on. A backend that sends none is not awaited for long.
func TestUsageAfterTheAgentHasLeft(t *testing.T) {
	t.Parallel()
	const finish = "data: {\"id\":\"c\",\"prompt_token_ids\":[1,2],\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"token_ids\":[3,4],\"finish_reason\":\"stop\"}]}\n\n"
	usage := func(tokens int) string {
		return fmt.Sprintf("data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", tokens, 2+tokens)
	}
	for name, c := range map[string]struct {
		last string
		ids  int
	}{"all ids": {usage(2), 2}, "gaps": {usage(3), 0}, "no usage": {": nothing\n\n", 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
					res := respond(200, http.Header{"Content-Type": {"text/event-stream"}}, "")
					res.ContentLength, res.Body = -1, io.NopCloser(reader(func(b []byte) (int, error) {
						delay := 100 * time.Millisecond
						if sent++; sent == 3 {
							delay = time.Hour
						}
						select {
						case <-r.Context().Done():
							return 0, r.Context().Err()
						case <-time.After(delay):
							return copy(b, []string{finish, c.last}[sent-1]), nil
						}
					}))
					return res, nil
				}, nil, "backend")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, attemptPath, strings.NewReader(streamed(hello)))
				begun := time.Now()
				if aborts(func() { p.ServeHTTP(&leaver{httptest.NewRecorder(), `"finish_reason":"stop"`, cancel}, r) }) {
					t.Error("broken off")
				}
				if took := time.Since(begun); took > 3*time.Second {
					t.Errorf("the call ended after %s", took)
				}
				flushErr := p.Flush(t.Context(), nil)
				closed(t, p)
				calls := store.calls()
				if flushErr != nil || len(calls) != 1 || calls[0].Status.Code != agl.StatusOK {
					t.Fatalf("%v, recorded as %+v", flushErr, calls)
				}
				if ids, _ := calls[0].Attributes.GetInts(agl.AttrResponseTokenIDs); len(ids) != c.ids {
					t.Errorf("recorded with the ids %v, want %d", ids, c.ids)
				}
			})
		})
	}
}

// The agent gets the finish reason, with which it may leave, when the call has its sequence id.
func TestSequenceBeforeTheFinishReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stream := chatEvents(`{"index":0,"delta":{"content":"hi"}}`, `{"index":0,"delta":{},"finish_reason":"stop"}`)
		p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
			return events(r, func(i int) string { return append(stream, "")[i] }), nil
		}, nil, "backend")
		given := make(chan struct{})
		store.reserve = func() error {
			<-given
			return nil
		}
		var body strings.Builder
		w := &leaver{httptest.NewRecorder(), `"finish_reason":"stop"`, func() { body.WriteString("sent") }}
		var group sync.WaitGroup
		group.Go(func() {
			p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, attemptPath, strings.NewReader(streamed(hello))))
		})
		time.Sleep(4 * time.Second) // an event a second
		if body.Len() > 0 {
			t.Error("the agent has the finish reason before the call has its sequence id")
		}
		close(given)
		group.Wait()
		if body.Len() == 0 {
			t.Errorf("the agent got %s", w.Body)
		}
		closed(t, p)
	})
}

// An agent that leaves while the end of its reply waits for the call's sequence id has not had the reply, though its end can be
// written: it may repeat the call, and would be credited for both.
func TestLeavesBeforeTheSequence(t *testing.T) {
	t.Parallel()
	stream := chatEvents(`{"index":0,"delta":{"content":"hi"}}`, `{"index":0,"delta":{},"finish_reason":"stop"}`)
	for name, tt := range map[string]struct{ path, body string }{
		"stream": {attemptPath, streamed(hello)}, "translated stream": {messagesPath, streamed(askMessage)}, "whole": {attemptPath, hello}, "translated": {messagesPath, askMessage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
					if body, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(body), `"stream":true`) {
						return respond(200, nil, completion("c", []int{1}, []int{2})), err
					}
					return inPieces(strings.Join(stream, ""), 50), nil
				}, nil, "backend")
				store.reserve = func() error {
					time.Sleep(3 * time.Second)
					return nil
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, context.Canceled)
				defer cancel()
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, tt.path, strings.NewReader(tt.body))
				if !aborts(func() { p.ServeHTTP(httptest.NewRecorder(), r) }) {
					t.Error("not broken off")
				}
				closed(t, p)
				calls := store.calls()
				if len(calls) != 1 || calls[0].Status.Code != agl.StatusError || attribute(t, &calls[0], record.AttrDelivered) != "false" {
					t.Errorf("recorded as %+v", calls)
				}
			})
		})
	}
}

// An agent that leaves as soon as it has the status of an error, without reading the body, has met that error all the same.
func TestLeavesAtTheStatus(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
		want   agl.OutcomeKind
	}{
		"context overflow": {400, `{"error":{"message":"too long","code":"context_length_exceeded"}}`, agl.OutcomeContextOverflow},
		"rate limit":       {429, `{"error":{"message":"too many"}}`, agl.OutcomeModelError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, store := plugged(t, func(*http.Request) (*http.Response, error) { return respond(tt.status, nil, tt.body), nil }, nil, "backend")
				store.reserve = func() error {
					time.Sleep(3 * time.Second)
					return nil
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, context.Canceled)
				defer cancel()
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, attemptPath, strings.NewReader(hello))
				if !aborts(func() { p.ServeHTTP(httptest.NewRecorder(), r) }) {
					t.Error("not broken off")
				}
				closed(t, p)
				calls := store.calls()
				if len(calls) != 1 || attribute(t, &calls[0], record.AttrDelivered) != "false" || attribute(t, &calls[0], record.AttrOutcome) != string(tt.want) {
					t.Errorf("recorded as %+v", calls)
				}
			})
		})
	}
}

// A stream is whole once the event that ends it has come, however its connection ends, and also if it does not for long.
func TestBreaksOffAfterTheEnd(t *testing.T) {
	t.Parallel()
	const stream = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	for name, body := range map[string]func(r *http.Request) io.Reader{
		"with the last event": func(*http.Request) io.Reader {
			return iotest.DataErrReader(io.MultiReader(strings.NewReader(stream), iotest.ErrReader(io.ErrUnexpectedEOF)))
		},
		"later": func(*http.Request) io.Reader {
			return io.MultiReader(strings.NewReader(stream), iotest.ErrReader(io.ErrUnexpectedEOF))
		},
		"never": func(r *http.Request) io.Reader {
			return io.MultiReader(strings.NewReader(stream), reader(func([]byte) (int, error) {
				<-r.Context().Done()
				return 0, r.Context().Err()
			}))
		},
	} {
		for _, path := range []string{attemptPath, strings.Replace(attemptPath, "/chat/completions", "/messages", 1)} {
			t.Run(name+path, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
						res := respond(200, http.Header{"Content-Type": {"text/event-stream"}}, "")
						res.Body, res.ContentLength = io.NopCloser(body(r)), -1
						return res, nil
					}, nil, "backend")
					r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(streamed(hello)))
					w, start := httptest.NewRecorder(), time.Now()
					if aborts(func() { p.ServeHTTP(w, r) }) {
						t.Errorf("broken off after %s", w.Body)
					}
					if took := time.Since(start); took > 5*time.Second {
						t.Errorf("the agent waited for %s", took)
					}
					if err := p.Flush(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
					calls := store.calls()
					if len(calls) != 1 || calls[0].Status.Code != agl.StatusOK || attribute(t, &calls[0], record.AttrDelivered) != "true" {
						t.Errorf("recorded as %+v", calls)
					}
					closed(t, p)
				})
			})
		}
	}
}
