package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/httpserver"
)

// listenFlags say where a server listens.
type listenFlags struct {
	Host         string        `default:"127.0.0.1" help:"Address to listen on."`
	NoAuth       bool          `help:"Allow an address that others can reach although anybody may call."`
	DrainTimeout time.Duration `default:"10s" help:"On SIGTERM or SIGINT, answer accepted requests for at most so long."`
}

// check rejects an open door: an address beyond this machine for a server that
// asks nobody who they are. advice says what to do about it.
func (f listenFlags) check(guarded bool, advice string) error {
	ip := net.ParseIP(f.Host)
	loopback := f.Host == "localhost" || (ip != nil && ip.IsLoopback())
	if !loopback && !guarded && !f.NoAuth {
		return fmt.Errorf("--host=%s: others can reach this address: %s", f.Host, advice)
	}
	if f.DrainTimeout < 0 {
		return fmt.Errorf("--drain-timeout=%s: must not be negative", f.DrainTimeout)
	}
	return nil
}

// port is a TCP port; 0 takes a free one.
type port uint16

// UnmarshalText reads a port.
func (p *port) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil {
		return fmt.Errorf("got %q, must be a port number, 0 to 65535 (0 takes a free one)", text)
	}
	*p = port(n)
	return nil
}

// listen takes the address; a port in use says how to go on.
func listen(ctx context.Context, host string, p port) (net.Listener, error) {
	address := net.JoinHostPort(host, strconv.Itoa(int(p)))
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: address already in use; choose another with --port", address)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}

// service is an HTTP server of this program.
type service struct {
	name    string
	handler http.Handler
	// drain releases requests that block; nil for a service that has none.
	drain        func()
	drainTimeout time.Duration
	log          *slog.Logger
}

// serve serves until ctx ends, then lets the requests that were accepted finish.
// A second signal ends it at once.
func (s service) serve(ctx context.Context, m *Main, listener net.Listener) error {
	server := httpserver.New(s.handler, s.log)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	url := "http://" + listener.Addr().String()
	s.log.Info(s.name+" listens", "url", url, "version", version())
	if m.Listening != nil {
		m.Listening(url)
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
