package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/memnet"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// lossyClient is a client whose connection breaks before, or after, the server
// has executed each of the first requests.
func lossyClient(t *testing.T, store agl.Store, losses int, before bool) (c *client.Client, executed *atomic.Int64) {
	t.Helper()
	executed = new(atomic.Int64)
	left := losses
	handler := newServer(t, server.Config{Store: store})
	c, err := client.New(client.Config{
		URL: "http://store", RetryTimeout: 3 * time.Second, MaxBackoff: time.Second,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			lost := left > 0
			left--
			if lost && before {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
			}
			executed.Add(1)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if lost {
				return nil, &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}
			}
			return w.Result(), nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, executed
}

func TestDeleteIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memorytest.Open(t)
		r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: r.RolloutID}); err != nil {
			t.Fatal(err)
		}
		c, executed := lossyClient(t, store, 1, false)
		if err := c.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: r.RolloutID}); err != nil || executed.Load() != 2 {
			t.Errorf("after %d requests: %v", executed.Load(), err)
		}
		if err := c.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: r.RolloutID}); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("what was never there: error is %v, want not found", err)
		}
	})
}

// TestRequeueIsNotRepeated: what a lost answer leaves open is whether somebody
// has already claimed the rollout that a repeat would queue again.
func TestRequeueIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		status   agl.RolloutStatus
		before   bool
		executed int64
		fails    bool
	}{
		{"queued, the answer is lost", agl.RolloutQueuing, false, 1, true},
		{"queued, the server is away", agl.RolloutQueuing, true, 1, false},
		{"cancelled, the answer is lost", agl.RolloutCancelled, false, 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memorytest.Open(t)
				r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
				if err != nil {
					t.Fatal(err)
				}
				c, executed := lossyClient(t, store, 1, tc.before)
				_, err = c.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: r.RolloutID, Status: &tc.status})
				if executed.Load() != tc.executed || (err != nil) != tc.fails {
					t.Errorf("executed %d times with error %v, want %d times, an error: %t", executed.Load(), err, tc.executed, tc.fails)
				}
				if err != nil && !errors.Is(err, agl.ErrUnavailable) {
					t.Errorf("error is %v, want unavailable", err)
				}
			})
		})
	}
}

// TestRetryAfter: the client comes back when the server says, unless that is too
// late for it.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for after, want := range map[string]struct {
		requests int
		took     time.Duration
	}{"2": {2, 2 * time.Second}, "60": {1, 0}} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				c, err := client.New(client.Config{
					URL: "http://store", RetryTimeout: 10 * time.Second, MaxBackoff: time.Millisecond,
					Transport: roundTripper(func(*http.Request) (*http.Response, error) {
						requests++
						w := httptest.NewRecorder()
						if requests == 1 {
							w.Header().Set("Retry-After", after)
							w.WriteHeader(http.StatusServiceUnavailable)
						} else if _, err := w.WriteString(`{"name":"x"}`); err != nil {
							return nil, err
						}
						return w.Result(), nil
					}),
				})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				_, err = c.Statistics(t.Context())
				if took := time.Since(start); requests != want.requests || took != want.took || (err == nil) != (requests == 2) {
					t.Errorf("%d requests in %s with error %v, want %d in %s", requests, took, err, want.requests, want.took)
				}
			})
		})
	}
}

// TestOutageIsLogged: a server that is away for ten minutes is one line in ten seconds, not one for each of the requests that wait for it,
// and one when it is back.
func TestOutageIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		back := time.Now().Add(10 * time.Minute)
		c, err := client.New(client.Config{
			URL: "http://store", RetryTimeout: 2 * time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				if time.Now().Before(back) {
					return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
				}
				w := httptest.NewRecorder()
				_, err := w.WriteString(`{"name":"x"}`)
				return w.Result(), err
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		for range 32 {
			waiting.Go(func() {
				if _, err := c.Statistics(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		waiting.Wait()
		const most = 600 / 10
		if n := strings.Count(log.String(), "retrying a request"); n < most/2 || n > most {
			t.Errorf("%d lines for ten minutes", n)
		}
		if n := strings.Count(log.String(), "the store answers again"); n != 1 {
			t.Errorf("%d lines for its end", n)
		}
	})
}

// TestBadNetworkIsLogged: where every third request is lost, each repeat succeeds, and the log has a pair of lines in ten seconds at most.
func TestBadNetworkIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		sent := 0
		c, err := client.New(client.Config{
			URL: "http://store", Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				if sent++; sent%3 == 0 {
					return nil, &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
				}
				w := httptest.NewRecorder()
				_, err := w.WriteString(`{"name":"x"}`)
				return w.Result(), err
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(100 * time.Millisecond) {
			if _, err := c.Statistics(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		retries, recoveries := strings.Count(log.String(), "retrying a request"), strings.Count(log.String(), "the store answers again")
		if retries < 5 || retries > 7 || recoveries != retries {
			t.Errorf("%d lines of retries and %d of their ends for a minute, want 6 of each", retries, recoveries)
		}
	})
}

// TestAbsentStore: a load balancer that has no store behind it for a moment answers 404 itself. A client that knows the store repeats its request.
func TestAbsentStore(t *testing.T) {
	t.Parallel()
	const page = "<html><head><title>404 Not Found</title></head><body><h1>404 Not Found</h1></body></html>"
	for name, tc := range map[string]struct {
		status  int
		body    string
		known   bool // the store has answered before
		repeats bool
	}{
		"page":               {http.StatusNotFound, page, true, true},
		"text":               {http.StatusNotFound, "404 page not found", true, true},
		"nothing":            {http.StatusMethodNotAllowed, "", true, true},
		"of a store":         {http.StatusNotFound, `{"detail":"Not Found"}`, true, false},
		"of a store's error": {http.StatusNotImplemented, `{"detail":"no","error_type":"NotImplementedError","code":"unimplemented"}`, true, false},
		"of a wrong URL":     {http.StatusNotFound, page, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newServer(t, server.Config{Store: memorytest.Open(t)})
				absent, refused := !tc.known, 0
				c, err := client.New(client.Config{URL: "http://store", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					w := httptest.NewRecorder()
					if absent && refused < 3 {
						refused++
						w.WriteHeader(tc.status)
						_, err := w.WriteString(tc.body)
						return w.Result(), err
					}
					store.ServeHTTP(w, r)
					return w.Result(), nil
				})})
				if err != nil {
					t.Fatal(err)
				}
				if tc.known {
					enqueue(t, c, "1")
				}
				absent = true
				_, err = c.Statistics(t.Context())
				if tc.repeats && (err != nil || refused != 3) {
					t.Errorf("error is %v after %d refusals, want it to be repeated", err, refused)
				}
				if !tc.repeats && (!errors.Is(err, agl.ErrUnimplemented) || refused != 1) {
					t.Errorf("error is %v after %d refusals, want unimplemented at once", err, refused)
				}
			})
		})
	}
}

// TestHealthBeforeLargeBodies: spans are sent again only when the server answers.
func TestHealthBeforeLargeBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := memorytest.Open(t)
		started, err := engine.StartRollout(t.Context(), agl.StartRolloutParams{})
		if err != nil {
			t.Fatal(err)
		}
		var asked []string
		handler := newServer(t, server.Config{Store: engine})
		c, err := client.New(client.Config{
			URL: "http://store", MaxBackoff: time.Millisecond,
			Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				asked = append(asked, path.Base(r.URL.Path))
				if r.Body != nil {
					defer r.Body.Close()
				}
				if len(asked) < 5 {
					return nil, errors.New("nobody is there")
				}
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				return w.Result(), nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		span := agl.Span{RolloutID: started.RolloutID, AttemptID: started.Attempt.AttemptID, SequenceID: 1, Name: "n", TraceID: strings.Repeat("1", 32), SpanID: strings.Repeat("2", 16)}
		if _, err := c.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"batch", "health", "health", "health", "health", "batch"}; !slices.Equal(asked, want) {
			t.Errorf("asked %q, want %q", asked, want)
		}
	})
}

func TestClientNamesTheFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := countingClient(t, &stubStore{get: func(context.Context, agl.GetRolloutParams) (agl.AttemptedRollout, error) {
			return agl.AttemptedRollout{}, errors.New("secret")
		}})
		_, err := c.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: "ro-1"})
		if err == nil || !strings.Contains(err.Error(), "its log has more under request_id ") {
			t.Errorf("error is %v", err)
		}
	})
}

// slowBody is an answer in parts that take their time, unless the request ends.
type slowBody struct {
	ctx   context.Context
	parts []string
	each  time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	if len(b.parts) == 0 {
		return 0, io.EOF
	}
	select {
	case <-time.After(b.each):
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
	n := copy(p, b.parts[0])
	b.parts = b.parts[1:]
	return n, nil
}

func (*slowBody) Close() error { return nil }

// TestSlowAnswer checks that a client does not wait for ever for one request, and that it takes what arrives slowly.
func TestSlowAnswer(t *testing.T) {
	t.Parallel()
	const silent = "the store's server does not answer: nothing came from it for too long"
	for _, tc := range []struct {
		name        string
		first, each time.Duration // until the header, and then for each part of the answer
		took        time.Duration
		err         string
	}{
		{"answer in parts", 29 * time.Second, 29 * time.Second, 5 * 29 * time.Second, ""},
		{"no answer", time.Hour, 0, 30 * time.Second, silent},
		{"an answer that stops", time.Second, time.Hour, 31 * time.Second, silent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, err := client.New(client.Config{
					URL: "http://store", RetryTimeout: -1,
					Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
						select {
						case <-time.After(tc.first):
						case <-r.Context().Done():
							return nil, r.Context().Err()
						}
						body := &slowBody{r.Context(), []string{"{", `"rollouts"`, ":{", "}}"}, tc.each}
						return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: body, Request: r}, nil
					}),
				})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				_, err = c.Statistics(t.Context())
				if took := time.Since(start); took != tc.took {
					t.Errorf("it took %s, want %s", took, tc.took)
				}
				if tc.err == "" && err != nil || tc.err != "" && (agl.ErrorCode(err) != agl.CodeUnavailable || !strings.Contains(err.Error(), tc.err)) {
					t.Errorf("error is %v, want %q", err, tc.err)
				}
			})
		})
	}
}

// TestSlowUpload checks that a large body has time to arrive at a slow network's pace, and that one of a kilobyte has not.
func TestSlowUpload(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		size int
		took time.Duration
	}{
		{1 << 10, 30 * time.Second},
		{4 << 20, 38 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, err := client.New(client.Config{
				URL: "http://store", RetryTimeout: -1,
				Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			span := agl.Span{RolloutID: "ro-1", AttemptID: "at-1", SpanID: "s", Name: strings.Repeat("n", tc.size)}
			if _, err = c.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}}); agl.ErrorCode(err) != agl.CodeUnavailable {
				t.Errorf("error is %v, want unavailable", err)
			}
			if took := time.Since(start).Truncate(time.Second); took != tc.took {
				t.Errorf("%d bytes had %s, want %s", tc.size, took, tc.took)
			}
		})
	}
}

// TestRestart has a server go away and come back, with its store, between
// requests and under an event stream.
func TestRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := memorytest.Open(t)
		var current atomic.Pointer[memnet.Listener]
		start := func() (stop func()) {
			listener := memnet.Listen()
			web := &http.Server{Handler: newServer(t, server.Config{Store: engine})}
			var running sync.WaitGroup
			running.Go(func() { _ = web.Serve(listener) })
			current.Store(listener)
			return func() {
				if err := web.Close(); err != nil {
					t.Error(err)
				}
				running.Wait()
			}
		}
		c, err := client.New(client.Config{
			URL: "http://store", RetryTimeout: 20 * time.Second,
			Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return current.Load().Dial(ctx, network, address)
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := start()
		var reading sync.WaitGroup
		var kinds []agl.EventKind
		reading.Go(func() {
			for event, err := range c.Events(t.Context(), agl.EventsParams{}) {
				if err != nil {
					t.Errorf("event stream: %v", err)
				}
				if kinds = append(kinds, event.Kind); len(kinds) == 2 {
					return
				}
			}
		})
		synctest.Wait()
		enqueue(t, c, "1")
		synctest.Wait()
		stop()
		restarted := make(chan func(), 1)
		time.AfterFunc(10*time.Second, func() { restarted <- start() })
		enqueue(t, c, "2")
		stats, err := c.Statistics(t.Context())
		if err != nil || stats.TotalRollouts != 2 {
			t.Errorf("statistics %+v, %v", stats, err)
		}
		reading.Wait() // for one event before the restart and one after it
		if want := []agl.EventKind{agl.EventRollout, agl.EventRollout}; !slices.Equal(kinds, want) {
			t.Errorf("events %v, want %v", kinds, want)
		}
		(<-restarted)()
		begun := time.Now()
		if _, err := c.Statistics(t.Context()); !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("error is %v, want unavailable", err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("gave up after %s", took)
		}
		// A caller's deadline is the error, with what has failed until then.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := c.Statistics(ctx); !errors.Is(err, context.DeadlineExceeded) || agl.Transient(err) || !strings.Contains(err.Error(), "the store's server does not answer") {
			t.Errorf("error is %v, want the deadline and why it was not met", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Errors of the store keep their code on the way, and those that a repeat may cure
// are repeated.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err     error
		repeats bool
	}{
		{agl.Errorf(agl.CodeNotFound, "Rollout x not found"), false},
		{agl.Errorf(agl.CodeInvalid, "no"), false},
		{agl.Errorf(agl.CodeIllegalState, "not now"), false},
		{agl.Errorf(agl.CodeEvicted, "Spans for rollout x have been evicted"), false},
		{agl.Errorf(agl.CodeExhausted, "full"), false},
		{agl.Errorf(agl.CodeUnavailable, "away"), true},
		{agl.Errorf(agl.CodeUnimplemented, "no such thing"), false},
		{fmt.Errorf("wrapped: %w", agl.Errorf(agl.CodeConflict, "taken")), false},
		{errors.New("secret path /etc/x"), true},
	} {
		t.Run(string(agl.ErrorCode(tc.err)), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, calls := countingClient(t, &stubStore{addSpan: func(context.Context, agl.AddSpansParams) (agl.AddSpansResult, error) {
					return agl.AddSpansResult{}, tc.err
				}})
				_, err := c.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{{RolloutID: "ro-1", AttemptID: "at-1", SpanID: "s"}}})
				if got, want := agl.ErrorCode(err), agl.ErrorCode(tc.err); got != want {
					t.Errorf("error %v has code %s, want %s", err, got, want)
				}
				if again := calls.Load() > 1; again != tc.repeats {
					t.Errorf("made %d requests", calls.Load())
				}
			})
		})
	}
}
