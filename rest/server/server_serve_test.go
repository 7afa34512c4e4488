package server_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/server"
)

// A server serves until it is shut down or its context ends, and ends requests that wait.
func TestServe(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(t *testing.T, s *server.Server, cancel func()){
		"Shutdown": func(t *testing.T, s *server.Server, _ func()) {
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"the context": func(_ *testing.T, _ *server.Server, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waits := make(chan struct{})
			s := newServer(t, server.Config{Store: &patientStore{waits: waits}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			listener := listen(t)
			served := make(chan error, 1)
			go func() { served <- s.Serve(ctx, listener) }()
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			client := http.Client{Transport: transport}
			waiting := make(chan int, 1)
			go func() {
				resp, err := client.Post("http://"+listener.Addr().String()+"/v1/agl/queues/rollouts/dequeue", "application/json", strings.NewReader(`{"wait_seconds":60}`))
				if err != nil {
					t.Error(err)
					waiting <- 0
					return
				}
				waiting <- resp.StatusCode
				_ = resp.Body.Close() // only the status counts
			}()
			<-waits
			if err := s.Serve(t.Context(), listen(t)); !errors.Is(err, agl.ErrIllegalState) {
				t.Errorf("a second call: %v", err)
			}
			stop(t, s, cancel)
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
			if status := <-waiting; status != http.StatusOK && status != http.StatusServiceUnavailable {
				t.Errorf("the request that waited got %d", status)
			}
			if conn, err := net.Dial("tcp", listener.Addr().String()); err == nil {
				t.Error("it still listens", conn.Close())
			}
		})
	}
	t.Run("shut down before", func(t *testing.T) {
		t.Parallel()
		s := newServer(t, server.Config{Store: agl.UnimplementedStore{}})
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Serve(t.Context(), listen(t)); !errors.Is(err, agl.ErrIllegalState) {
			t.Errorf("got %v", err)
		}
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// patientStore is a store whose queue is empty.
type patientStore struct {
	agl.UnimplementedStore
	waits chan struct{} // closed when a dequeue waits
}

func (s *patientStore) DequeueRollouts(ctx context.Context, _ agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	close(s.waits)
	<-ctx.Done()
	return agl.DequeueResult{}, context.Cause(ctx)
}
