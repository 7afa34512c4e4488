package server

import (
	"context"
	"net"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
)

// stopTimeout bounds the requests that are still running when the context of Serve ends.
const stopTimeout = 10 * time.Second

// Serve serves HTTP on a listener, which it closes, until ctx ends, [Server.Shutdown] is called, or the listener
// fails. When ctx ends, running requests have 10 s to finish. The error is that of the listener or of requests that
// had to be cut off; an orderly stop returns nil. A Server serves once: a second call is agl.ErrIllegalState.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	running, err := s.begin(listener)
	if err != nil {
		_ = listener.Close() // the error of the call counts
		return err
	}
	select {
	case <-running.Done():
		return running.Err()
	case <-ctx.Done():
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return s.Shutdown(stopping)
	}
}

// begin starts accepting requests.
func (s *Server) begin(listener net.Listener) (*httpserver.Running, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return nil, agl.Errorf(agl.CodeIllegalState, "rest/server: it was shut down")
	case s.running != nil:
		return nil, agl.Errorf(agl.CodeIllegalState, "rest/server: it serves already")
	}
	s.running = httpserver.Start(listener, s, s.shared.log)
	return s.running, nil
}

// Shutdown ends waiting requests, lets the others finish while ctx lasts, and makes [Server.Serve] return. A server
// that has not served yet never will.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	s.mu.Lock()
	s.stopped = true
	running := s.running
	s.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.Shutdown(ctx)
}
