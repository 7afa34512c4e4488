package server_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/server"
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
			api := newServer(t, server.Config{Store: store, Token: "needed elsewhere"})
			w := ask(t, api, "GET", readyPath, "")
			if w.Code != tc.status || w.Body.String() != tc.body {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, tc.status, tc.body)
			}
			if after := w.Header().Get("Retry-After"); (after != "") != (tc.status == 503) {
				t.Errorf("Retry-After is %q", after)
			}
			if w := ask(t, api, "HEAD", readyPath, ""); w.Code != tc.status {
				t.Errorf("HEAD: %d", w.Code)
			}
			api.Drain()
			if w := ask(t, api, "HEAD", "/v1/agl/health", ""); w.Code != 200 {
				t.Errorf("HEAD of the health while draining: %d", w.Code)
			}
			if w := ask(t, api, "GET", readyPath, ""); w.Code != 503 || w.Body.String() != `{"status":"unavailable","reason":"draining"}` {
				t.Errorf("while draining: got %d %s", w.Code, w.Body)
			}
			if w := ask(t, api, "GET", "/v1/agl/health", ""); w.Code != 200 {
				t.Errorf("health while draining: got %d %s", w.Code, w.Body)
			}
			w = ask(t, api, "GET", "/v1/agl/statistics", "", "Authorization", "Bearer needed elsewhere")
			if w.Code != 503 || w.Header().Get("Retry-After") != "1" || w.Header().Get("Connection") != "close" || !strings.Contains(w.Body.String(), "shutting down") {
				t.Errorf("a call while draining: got %d %v %s", w.Code, w.Header(), w.Body)
			}
		})
	}
	api := newServer(t, server.Config{Store: &stubStore{}})
	if w := ask(t, api, "GET", readyPath, ""); w.Code != 200 {
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
		api := newServer(t, server.Config{Store: store, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		want := func(status int, asked int64) {
			t.Helper()
			if w := ask(t, api, "GET", readyPath, ""); w.Code != status || store.asked.Load() != asked {
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
