package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/memnet"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(dequeueEnv); url != "" {
		fmt.Fprintln(os.Stderr, dequeueForever(url))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// stubStore answers with what a test puts in; what it does not put in is
// unimplemented.
type stubStore struct {
	agl.UnimplementedStore
	enqueue func(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error)
	addSpan func(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error)
	get     func(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error)
}

func (s *stubStore) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	return s.enqueue(ctx, p)
}

func (s *stubStore) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	return s.addSpan(ctx, p)
}

func (s *stubStore) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	return s.get(ctx, p)
}

func newServer(t testing.TB, config server.Config) *server.Server {
	t.Helper()
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serve runs a server over a store on a pipe and returns a client of it, both
// stopped at the end of the test. A longPoll of 0 is the client's default.
func serve(t testing.TB, store agl.Store, longPoll time.Duration) *client.Client {
	t.Helper()
	api := newServer(t, server.Config{Store: store})
	listener := memnet.Listen()
	web := &http.Server{Handler: api}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = web.Serve(listener) // ends with http.ErrServerClosed
	}()
	transport := &http.Transport{DialContext: listener.Dial, MaxIdleConnsPerHost: 1024}
	c, err := client.New(client.Config{URL: "http://store", Transport: transport, LongPoll: longPoll})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		api.Drain()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return c
}

// countingClient returns a client over a store that gives up soon, and the
// number of its requests.
func countingClient(t testing.TB, store agl.Store) (*client.Client, *atomic.Int64) {
	t.Helper()
	var calls atomic.Int64
	handler := newServer(t, server.Config{Store: store})
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		calls.Add(1)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Result(), nil
	})
	c, err := client.New(client.Config{
		URL: "http://store", Transport: transport, RetryTimeout: 3 * time.Second, MaxBackoff: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, &calls
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func enqueue(t testing.TB, s agl.Store, inputs ...string) []string {
	t.Helper()
	p := agl.EnqueueRolloutsParams{}
	for _, in := range inputs {
		p.Rollouts = append(p.Rollouts, agl.EnqueueRollout{Input: []byte(in)})
	}
	queued, err := s.EnqueueRollouts(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, len(queued))
	for i, r := range queued {
		ids[i] = r.RolloutID
	}
	return ids
}

func finish(t testing.TB, s agl.Store, rolloutID string) {
	t.Helper()
	status := agl.RolloutSucceeded
	if _, err := s.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: rolloutID, Status: &status}); err != nil {
		t.Fatal(err)
	}
}

// spanDocument is a span of attempt at-1 of rollout ro-1.
const spanDocument = `{"rollout_id":"ro-1","attempt_id":"at-1","sequence_id":1,"trace_id":"00","span_id":"b7ad6b7169203331","parent_id":null,"name":"call","status":{"status_code":"OK","description":null},"attributes":{"score":1.0},"events":[],"links":[],"start_time":1.5,"end_time":null,"context":null,"parent":null,"resource":{"attributes":{},"schema_url":""}}`
