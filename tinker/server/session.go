package server

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker/wire"
)

func (s *Server) createSession(ctx context.Context, _ wire.CreateSessionRequest) (any, error) {
	id := newID("session")
	s.expire(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[id] = &session{active: time.Now(), models: map[int64]*future{}, samplers: map[int64]string{}}
	return wire.CreateSessionResponse{Type: "create_session", SessionID: id}, nil
}

func (s *Server) heartbeat(ctx context.Context, r wire.SessionHeartbeatRequest) (any, error) {
	s.expire(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	of, err := find(s.sessions, "session", r.SessionID)
	if err != nil {
		return nil, err
	}
	of.active = time.Now()
	return wire.TypedResult{Type: "session_heartbeat"}, nil
}

// enter finds a session, which does not expire before leave is called.
func (s *Server) enter(id string) (of *session, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of, err = find(s.sessions, "session", id); err != nil {
		return nil, nil, err
	}
	of.running++
	return of, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		of.running--
		of.active = time.Now()
	}, nil
}

// expire ends the sessions that have been idle for longer than SessionTimeout.
func (s *Server) expire(ctx context.Context) {
	s.mu.Lock()
	var orphans []*model
	for id, of := range s.sessions {
		if of.running == 0 && time.Since(of.active) > s.cfg.SessionTimeout {
			orphans = append(orphans, of.owned...)
			delete(s.sessions, id)
			maps.DeleteFunc(s.samplers, func(_ string, from *sampler) bool { return from.session == id })
			s.open = slices.DeleteFunc(s.open, func(from *sampler) bool { return from.session == id })
		}
	}
	for _, m := range orphans {
		delete(s.models, m.id)
	}
	s.live -= len(orphans)
	s.mu.Unlock()
	for _, m := range orphans {
		s.unload(ctx, m)
	}
}

// unload frees a model's memory.
func (s *Server) unload(ctx context.Context, m *model) {
	if err := m.client.Unload(ctx); err != nil && agl.ErrorCode(err) != agl.CodeNotFound {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "tinker: a model was not unloaded", slog.String("model", m.id), slog.Any("error", err))
	}
}
