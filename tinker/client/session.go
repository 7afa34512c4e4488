package client

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/tinker/wire"
)

// session is the client's session with the server. It begins with the first call that needs one, and a heartbeat keeps
// it alive until the client is closed.
type session struct {
	*transport

	turn *semaphore.Weighted // of size 1, held while a session is begun or given up
	id   string              // empty before there is one

	mu     sync.Mutex
	closed bool
	stop   context.CancelFunc // ends the heartbeat
	beats  sync.WaitGroup

	models, samplers atomic.Int64 // the sequence ids of the next ones
}

// close ends the heartbeat. The server ends the session when no heartbeat comes.
func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	s.stop()
	s.mu.Unlock()
	s.beats.Wait()
}

// open returns the session's id. It begins a session if there is none.
func (s *session) open(ctx context.Context) (string, error) {
	if err := s.turn.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer s.turn.Release(1)
	if s.id != "" {
		return s.id, nil
	}
	var made wire.CreateSessionResponse
	err := s.ask(ctx, request{path: wire.CreateSession, message: wire.CreateSessionRequest{
		Tags: []string{}, UserMetadata: map[string]string{}, SDKVersion: wire.SDKVersion, Type: "create_session",
	}}, &made)
	if err != nil {
		return "", err
	}
	if made.SessionID == "" {
		return "", agl.Errorf(agl.CodeInternal, "client: %s: the response has no session_id", wire.CreateSession)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", agl.Errorf(agl.CodeUnavailable, "client: is closed")
	}
	// The session outlives the call that began it.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.id, s.stop = made.SessionID, stop
	s.beats.Go(func() {
		defer stop()
		s.beat(life, made.SessionID)
	})
	return s.id, nil
}

// forget gives up a session that the server does not know any more.
func (s *session) forget(ctx context.Context, id string) error {
	if err := s.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.turn.Release(1)
	if s.id == id {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.id = ""
		s.stop()
	}
	return nil
}

// within runs do with a session, and once more with a new one if the server has forgotten the session, as after a restart.
func (s *session) within(ctx context.Context, do func(id string) error) error {
	for again := false; ; again = true {
		id, err := s.open(ctx)
		if err != nil {
			return err
		}
		if err = do(id); again || !errors.Is(err, agl.ErrNotFound) {
			return err
		}
		if beat := s.ask(ctx, heartbeat(id), &wire.TypedResult{}); !errors.Is(beat, agl.ErrNotFound) {
			return err // something else is unknown
		}
		if err := s.forget(ctx, id); err != nil {
			return err
		}
	}
}

// heartbeatInterval is that of the SDK.
const heartbeatInterval = 10 * time.Second

func heartbeat(id string) request {
	return request{path: wire.SessionHeartbeat, message: wire.SessionHeartbeatRequest{SessionID: id, Type: "session_heartbeat"}}
}

// beat sends heartbeats until ctx ends or the server has forgotten the session. A heartbeat that fails is not repeated,
// because the next one follows soon.
func (s *session) beat(ctx context.Context, id string) {
	for backoff.Sleep(ctx, heartbeatInterval) == nil {
		rep, err := s.send(ctx, heartbeat(id))
		if err == nil && rep.status/100 != 2 {
			err = rep.problem(wire.SessionHeartbeat)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "client: heartbeat failed", slog.Any("error", err))
		}
		if errors.Is(err, agl.ErrNotFound) {
			return
		}
	}
}
