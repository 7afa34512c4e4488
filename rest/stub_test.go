package rest_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/rest"
)

// stubStore answers with what a test puts in; what it does not put in is
// unimplemented.
type stubStore struct {
	agl.UnimplementedStore
	enqueue func(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error)
	dequeue func(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error)
	addSpan func(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error)
	get     func(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error)
	wait    func(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error)
	returns func(ctx context.Context, p agl.ReturnClaimsParams) error
}

func (s *stubStore) Capabilities() agl.Capabilities {
	return agl.Capabilities{ReturnClaims: s.returns != nil}
}

func (s *stubStore) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	return s.enqueue(ctx, p)
}

func (s *stubStore) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	return s.dequeue(ctx, p)
}

func (s *stubStore) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	return s.addSpan(ctx, p)
}

func (s *stubStore) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	return s.get(ctx, p)
}

func (s *stubStore) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error) {
	return s.wait(ctx, p)
}

func (s *stubStore) ReturnClaims(ctx context.Context, p agl.ReturnClaimsParams) error {
	return s.returns(ctx, p)
}

func newServer(t testing.TB, config rest.ServerConfig) *rest.Server {
	t.Helper()
	s, err := rest.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask sends one request straight to a handler.
func ask(t testing.TB, h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// pipeListener is a network in memory, usable where time is simulated.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4747} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve runs a server over a store on a pipe and returns a client of it, both
// stopped at the end of the test. A longPoll of 0 is the client's default.
func serve(t testing.TB, store agl.Store, longPoll time.Duration) *rest.Client {
	t.Helper()
	server := newServer(t, rest.ServerConfig{Store: store})
	listener := newPipeListener()
	web := &http.Server{Handler: server}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = web.Serve(listener) // ends with http.ErrServerClosed
	}()
	transport := &http.Transport{DialContext: listener.dial, MaxIdleConnsPerHost: 1024}
	client, err := rest.NewClient(rest.ClientConfig{URL: "http://store", Transport: transport, LongPoll: longPoll})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Drain()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return client
}

// countingClient returns a client over a store that gives up soon, and the
// number of its requests.
func countingClient(t testing.TB, store agl.Store) (*rest.Client, *atomic.Int64) {
	t.Helper()
	var calls atomic.Int64
	handler := newServer(t, rest.ServerConfig{Store: store})
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		calls.Add(1)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Result(), nil
	})
	client, err := rest.NewClient(rest.ClientConfig{
		URL: "http://store", Transport: transport, RetryBudget: 3 * time.Second, MaxBackoff: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return client, &calls
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func decode(t testing.TB, data []byte, v any) {
	t.Helper()
	if err := rawjson.Unmarshal(data, v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
