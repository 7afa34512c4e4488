package rest_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest"
)

// askableStore is a store that knows whether it is ready.
type askableStore struct {
	agl.UnimplementedStore
	asked atomic.Int64
	ready func(ctx context.Context) error
}

func (s *askableStore) Ready(ctx context.Context) error {
	s.asked.Add(1)
	return s.ready(ctx)
}

const readyPath = "/v1/agl/ready"

func TestReady(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		err    error
		status int
		body   string
	}{
		{"well", nil, 200, `{"status":"ready"}`},
		{"the database is away", agl.Errorf(agl.CodeUnavailable, "dial postgres://agl:secret@db"), 503, `{"status":"unavailable","reason":"unavailable"}`},
		{"the disk is full", agl.Errorf(agl.CodeExhausted, "no secret space left"), 503, `{"status":"unavailable","reason":"exhausted"}`},
		{"a fault", errors.New("secret"), 503, `{"status":"unavailable","reason":"internal"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			store := &askableStore{ready: func(context.Context) error { return tc.err }}
			server := newServer(t, rest.ServerConfig{Store: store, Token: "needed elsewhere"})
			w := ask(t, server, "GET", readyPath, "")
			if w.Code != tc.status || w.Body.String() != tc.body {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, tc.status, tc.body)
			}
			if after := w.Header().Get("Retry-After"); (after != "") != (tc.status == 503) {
				t.Errorf("Retry-After is %q", after)
			}
			server.Drain()
			if w := ask(t, server, "GET", readyPath, ""); w.Code != 503 || w.Body.String() != `{"status":"unavailable","reason":"draining"}` {
				t.Errorf("while draining: got %d %s", w.Code, w.Body)
			}
			if w := ask(t, server, "GET", "/v1/agl/health", ""); w.Code != 200 {
				t.Errorf("health while draining: got %d %s", w.Code, w.Body)
			}
			w = ask(t, server, "GET", "/v1/agl/statistics", "", "Authorization", "Bearer needed elsewhere")
			if w.Code != 503 || w.Header().Get("Retry-After") != "1" || w.Header().Get("Connection") != "close" || !strings.Contains(w.Body.String(), "shutting down") {
				t.Errorf("a call while draining: got %d %v %s", w.Code, w.Header(), w.Body)
			}
		})
	}
	server := newServer(t, rest.ServerConfig{Store: &stubStore{}})
	if w := ask(t, server, "GET", readyPath, ""); w.Code != 200 {
		t.Errorf("a store that cannot tell: got %d %s", w.Code, w.Body)
	}
}

// TestReadySpares checks that probes cannot keep a database busy, that one which
// hangs is not ready, and that changes are logged once.
func TestReadySpares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hangs bool
		store := &askableStore{ready: func(ctx context.Context) error {
			if !hangs {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		var log bytes.Buffer
		server := newServer(t, rest.ServerConfig{Store: store, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		want := func(status int, asked int64) {
			t.Helper()
			if w := ask(t, server, "GET", readyPath, ""); w.Code != status || store.asked.Load() != asked {
				t.Errorf("got %d after the store was asked %d times, want %d after %d", w.Code, store.asked.Load(), status, asked)
			}
		}
		want(200, 1)
		want(200, 1)
		hangs = true
		time.Sleep(2 * time.Second)
		want(503, 2)
		want(503, 2)
		time.Sleep(2 * time.Second)
		want(503, 3)
		hangs = false
		time.Sleep(2 * time.Second)
		want(200, 4)
		if text := log.String(); strings.Count(text, `msg="not ready"`) != 1 || strings.Count(text, `msg="ready again"`) != 1 {
			t.Errorf("log: %s", text)
		}
	})
}

// lossyClient is a client whose connection breaks before, or after, the server
// has executed each of the first requests.
func lossyClient(t *testing.T, store agl.Store, losses int, before bool) (client *rest.Client, executed *atomic.Int64) {
	t.Helper()
	executed = new(atomic.Int64)
	left := losses
	handler := newServer(t, rest.ServerConfig{Store: store})
	client, err := rest.NewClient(rest.ClientConfig{
		URL: "http://store", RetryBudget: 3 * time.Second, MaxBackoff: time.Second,
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
	return client, executed
}

func TestDeleteIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: r.RolloutID}); err != nil {
			t.Fatal(err)
		}
		client, executed := lossyClient(t, store, 1, false)
		if err := client.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: r.RolloutID}); err != nil || executed.Load() != 2 {
			t.Errorf("after %d requests: %v", executed.Load(), err)
		}
		if err := client.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: r.RolloutID}); !errors.Is(err, agl.ErrNotFound) {
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
				store := newStore(t)
				r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
				if err != nil {
					t.Fatal(err)
				}
				client, executed := lossyClient(t, store, 1, tc.before)
				_, err = client.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: r.RolloutID, Status: &tc.status})
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
				client, err := rest.NewClient(rest.ClientConfig{
					URL: "http://store", RetryBudget: 10 * time.Second, MaxBackoff: time.Millisecond,
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
				_, err = client.Statistics(t.Context())
				if took := time.Since(start); requests != want.requests || took != want.took || (err == nil) != (requests == 2) {
					t.Errorf("%d requests in %s with error %v, want %d in %s", requests, took, err, want.requests, want.took)
				}
			})
		})
	}
}

// TestTroubleIsLogged: an operator learns of a full disk, and not a thousand
// times.
func TestTroubleIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &stubStore{addSpan: func(context.Context, agl.AddSpansParams) (agl.AddSpansResult, error) {
			return agl.AddSpansResult{}, agl.Errorf(agl.CodeExhausted, "no space is left")
		}}
		server := newServer(t, rest.ServerConfig{Store: store, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		send := func(n int) {
			t.Helper()
			for range n {
				if w := ask(t, server, "POST", "/v1/agl/spans", spanDocument); w.Code != http.StatusInsufficientStorage {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
			}
		}
		send(100)
		time.Sleep(time.Minute)
		send(1)
		text := log.String()
		if strings.Count(text, "\n") != 2 || !strings.Contains(text, `error="no space is left" not_logged=0`) || !strings.Contains(text, "not_logged=99") {
			t.Errorf("log: %s", text)
		}
	})
}

func TestClientNamesTheFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, _ := countingClient(t, &stubStore{get: func(context.Context, agl.GetRolloutParams) (agl.AttemptedRollout, error) {
			return agl.AttemptedRollout{}, errors.New("secret")
		}})
		_, err := client.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: "ro-1"})
		if err == nil || !strings.Contains(err.Error(), "its log has more under request_id ") {
			t.Errorf("error is %v", err)
		}
	})
}
