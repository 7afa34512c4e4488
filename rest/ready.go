package rest

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
)

const (
	// readyTimeout bounds how long a store is asked; probes themselves wait for
	// a second or so.
	readyTimeout = 2 * time.Second
	// readyFor is how long an answer of the store is passed on: anybody may ask,
	// and must not be able to keep the database busy.
	readyFor = time.Second
)

// readiness is what is known about whether the store is ready.
type readiness struct {
	mu    sync.Mutex
	asked time.Time // when err was found out; zero before the first time
	err   error
}

// ready tells a load balancer whether to send requests here. It tells no more
// than a code, since no token is asked; the log has the rest.
func (s *Server) ready(c *call) error {
	reason := ""
	if s.drained() {
		reason = "draining"
	} else if err := s.checkReady(c.request.Context()); err != nil {
		reason = string(agl.ErrorCode(err))
	}
	if reason == "" {
		return c.send(http.StatusOK, append(c.out, `{"status":"ready"}`...))
	}
	backoff.SetRetryAfter(c.Header(), time.Second)
	out := c.out
	out = append(out, `{"status":"unavailable","reason":`...)
	return c.send(http.StatusServiceUnavailable, append(rawjson.AppendString(out, reason), '}'))
}

// checkReady asks the store, or passes on what it has just answered to somebody
// else. What changes is logged.
func (s *Server) checkReady(ctx context.Context) error {
	r := &s.readiness
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asked.IsZero() && time.Since(r.asked) < readyFor {
		return r.err
	}
	// The answer is for everybody, whoever has asked and is perhaps gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	err := s.store.Ready(ctx)
	if agl.IsContextError(err) {
		err = agl.Errorf(agl.CodeUnavailable, "the database has not answered within %s", readyTimeout)
	}
	switch {
	case err != nil && r.err == nil:
		s.config.Logger.Warn("not ready", "error", err)
	case err == nil && r.err != nil:
		s.config.Logger.Info("ready again")
	}
	r.asked, r.err = time.Now(), err
	return err
}
