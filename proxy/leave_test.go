package proxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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

// An agent that leaves with the event that ends a stream, or with the finish reason, has all of the reply,
// though the backend has not closed it; one that leaves before has not.
func TestLeavesAtTheEnd(t *testing.T) {
	t.Parallel()
	for when, want := range map[string]struct {
		status    agl.StatusCode
		delivered string
	}{
		"data: [DONE]\n\n":       {agl.StatusOK, "true"},
		`"finish_reason":"stop"`: {agl.StatusOK, "true"},
		`"finish_reason":null`:   {agl.StatusError, "false"},
	} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				stream := []string{runaway["chat"](0), "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", "data: [DONE]\n\n"}
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
				if broken := aborts(func() { p.ServeHTTP(&leaver{httptest.NewRecorder(), when, cancel}, r) }); broken != (want.status != agl.StatusOK) {
					t.Errorf("broken off: %v", broken)
				}
				if err := p.Flush(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				calls := store.calls()
				if len(calls) != 1 || calls[0].Status.Code != want.status || attribute(t, &calls[0], record.AttrDelivered) != want.delivered {
					t.Errorf("recorded as %+v", calls)
				}
				closed(t, p)
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
