package httpserver_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/agl-go/agl/internal/httpserver"
)

// A request that does not end is cut off when the time is over.
func TestShutdown(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan struct{})
	server := httpserver.Start(listener, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}), slog.New(slog.DiscardHandler))
	answered := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "http://"+listener.Addr().String(), nil)
		if err != nil {
			answered <- err
			return
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			err = res.Body.Close()
		}
		answered <- err
	}()
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("shutdown returned %v", err)
	}
	if err := <-answered; err == nil {
		t.Error("the request was answered")
	}
}

func TestServerThatFails(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	server := httpserver.Start(listener, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	<-server.Done()
	if !errors.Is(server.Err(), net.ErrClosed) {
		t.Errorf("ended with %v", server.Err())
	}
}
