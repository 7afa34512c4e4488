package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/httpserver"
)

// service is an HTTP server of this program.
type service struct {
	name    string
	handler http.Handler
	// drain releases requests that block; nil for a service that has none.
	drain        func()
	drainTimeout time.Duration
	log          *slog.Logger
}

// serve answers requests until ctx ends, and then finishes those that it has
// accepted. A second signal ends it at once.
func (s service) serve(ctx context.Context, out *console.Console, listener net.Listener) error {
	server := httpserver.New(s.handler, s.log)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	url := "http://" + listener.Addr().String()
	s.log.Info(s.name+" listens", "url", url, "version", version())
	if out.Listening != nil {
		out.Listening(url)
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", s.name, err)
	case <-ctx.Done():
	}
	s.log.Info("draining", "cause", context.Cause(ctx), "timeout", s.drainTimeout)
	if s.drain != nil {
		s.drain()
	}
	draining, cancel := execution.CleanupContext(ctx, s.drainTimeout)
	defer cancel()
	err := server.Shutdown(draining)
	switch {
	case errors.Is(err, context.Canceled): // the user insists
		err = errors.Join(context.Cause(ctx), server.Close())
	case err != nil:
		err = errors.Join(fmt.Errorf("requests are left after %s: %w", s.drainTimeout, err), server.Close())
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("drain %s: %w", s.name, err)
	}
	s.log.Info("drained")
	return nil
}
