package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/httpserver"
)

// service is an HTTP server of this program.
type service struct {
	name    string
	handler http.Handler
	// drain releases requests that wait for something; nil if there are none.
	drain func()
	// abort tells the requests that the drain has not waited for why they end; nil if they need not know.
	abort  func()
	listen *flags.Listen
	log    *slog.Logger
}

// beside serves the paths that one handler owns by it, and everything else by another.
func beside(owns func(path string) bool, one, other http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if owns(r.URL.Path) {
			one.ServeHTTP(w, r)
			return
		}
		other.ServeHTTP(w, r)
	})
}

// serve answers requests until ctx ends, and then those that it has accepted. A second signal ends it at once.
func (s service) serve(ctx context.Context, out *console.Console, listener net.Listener) error {
	server := httpserver.Start(listener, s.handler, s.log, s.listen.Trusted()...)
	url := s.listen.URL(listener)
	s.log.Info(s.name+" listens", "url", url, "version", version())
	if out.Listening != nil {
		out.Listening(url)
	}
	select {
	case <-server.Done():
		return fmt.Errorf("serve %s: %w", s.name, server.Err())
	case <-ctx.Done():
	}
	s.log.Info("draining", "cause", context.Cause(ctx), "timeout", s.listen.DrainTimeout)
	if s.drain != nil {
		s.drain()
	}
	draining, cancel := execution.CleanupContext(ctx, s.listen.DrainTimeout)
	defer cancel()
	err := server.ShutdownOr(draining, s.abort)
	switch {
	case errors.Is(err, context.Canceled): // by a second signal
		return fmt.Errorf("drain %s: %w", s.name, errors.Join(context.Cause(ctx), err))
	case err != nil:
		return fmt.Errorf("drain %s: requests are still running after %s: %w", s.name, s.listen.DrainTimeout, err)
	}
	s.log.Info("drained")
	return nil
}

// failedLogins is how often in a minute one address may send a wrong token or key.
const failedLogins = 60

// newThrottle limits failed logins. Its log says which address is refused: a program with an old token keeps out those who
// share its address.
func newThrottle(log *slog.Logger) *access.Throttle {
	t := access.NewThrottle(failedLogins)
	t.OnBlock = func(address string) {
		log.Warn("an address has sent too many wrong tokens or keys, and all but keys is refused from it for up to a minute", "address", address, "failures", failedLogins)
	}
	return t
}
