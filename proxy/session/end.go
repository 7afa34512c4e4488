package session

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
)

// End ends a session. While calls are running, or if there is a Config.Reward, this happens in
// the background. An error of the store is returned, and the background work tries again.
func (m *Manager) End(ctx context.Context, s *Session, why string) error {
	m.mu.Lock()
	if s.end != "" && m.byRollout[s.RolloutID] != s {
		m.mu.Unlock()
		return errEnded(s.RolloutID)
	}
	m.close(s, why)
	running := s.running
	m.mu.Unlock()
	switch {
	case running > 0: // the last of them wakes the background work
		return nil
	case m.config.Reward != nil:
		background.Wake(m.wake)
		return nil
	}
	return m.finish(ctx, s)
}

// Cancelled tells the manager that a rollout was cancelled or deleted, and reports whether it was
// an open session's. The name of that session may then begin another one.
func (m *Manager) Cancelled(rolloutID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.byRollout[rolloutID]
	if s == nil {
		return false
	}
	m.close(s, EndCall)
	delete(m.byRollout, rolloutID) // without forget: the store may take that back, as for a project that is archived for a while
	return true
}

// flush stores the remaining records of a session's calls.
func (m *Manager) flush(ctx context.Context, s *Session) error {
	ctx, cancel := context.WithTimeout(ctx, m.config.StoreTimeout)
	defer cancel()
	if err := m.config.Flush(ctx, s.RolloutID, s.AttemptID); err != nil {
		if agl.Transient(err) || ctx.Err() != nil {
			return err
		}
		m.config.Logger.Warn("records of a session, or what it emitted last, were lost", "rollout_id", s.RolloutID, "error", err)
	}
	return nil
}

// finish flushes the calls of a session, gives it its rewards, and ends its attempt.
func (m *Manager) finish(ctx context.Context, s *Session) error {
	if err := m.flush(ctx, s); err != nil {
		return err
	}
	if m.config.Reward != nil {
		if err := m.config.Reward(ctx, s.RolloutID, s.AttemptID); err != nil && !errors.Is(err, agl.ErrNotFound) {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, m.config.StoreTimeout)
	defer cancel()
	doc, err := json.Marshal(map[string]string{MetadataEnd: s.end})
	if err != nil {
		return err
	}
	status := agl.AttemptSucceeded
	_, err = m.config.Store.UpdateAttempt(ctx, agl.UpdateAttemptParams{
		RolloutID: s.RolloutID, AttemptID: s.AttemptID, Status: &status, Metadata: agl.WithOutcome(doc, agl.Outcome{Kind: agl.OutcomeOK}),
	})
	if err != nil && !errors.Is(err, agl.ErrNotFound) { // a rollout that was deleted needs no end
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(s)
	m.config.Logger.Debug("session ended", "rollout_id", s.RolloutID, "why", s.end, "calls", s.calls)
	return nil
}

// idleGrace is how long idle sessions stay open once models are served, or their idle timeout if that is shorter: their programs
// may have tried to call while no proxy or no model was there.
const idleGrace = time.Minute

// run ends sessions until ctx ends.
func (m *Manager) run(ctx context.Context) {
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	ticker := time.Tick(min(max(m.config.IdleTimeout/20, shortest), longest))
	var served time.Time // since when open sessions can call
	for {
		if !m.adopted {
			if err := m.adopt(ctx); err != nil {
				m.away(ctx, &m.unfound, "open sessions of an earlier process could not be found yet", "", err)
			} else {
				m.adopted, served = true, time.Time{}
			}
		}
		if served.IsZero() && m.ready() {
			served = time.Now()
		}
		m.endAll(ctx, served)
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-ticker:
		}
	}
}

// away logs that the store does not do something, which is tried again.
func (m *Manager) away(ctx context.Context, seldom *Seldom, message, rolloutID string, err error) {
	if ctx.Err() == nil {
		m.config.Logger.Log(ctx, seldom.Level(), message, "rollout_id", rolloutID, "error", err)
	}
}

// Seldom gives the level of a message that comes again and again while a store is away: a warning every half minute, and debug in
// between. Its zero value is ready.
type Seldom struct{ last atomic.Int64 }

// Level returns the level of the message that is logged now.
func (s *Seldom) Level() slog.Level {
	const every = 30 * time.Second
	now, last := time.Now().UnixNano(), s.last.Load()
	if last != 0 && now >= last && now-last < int64(every) || !s.last.CompareAndSwap(last, now) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// adopt finds the open sessions in the store. They have been idle since their last record; otherwise a proxy that is restarted more often than
// the idle timeout would end none.
func (m *Manager) adopt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.config.StoreTimeout)
	defer cancel()
	page, err := m.config.Store.QueryRollouts(ctx, agl.QueryRolloutsParams{
		StatusIn: []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutRunning}, Paging: agl.Paging{Limit: -1},
	})
	if err != nil {
		return err
	}
	for i := range page.Items {
		r := &page.Items[i]
		s, err := m.add(r)
		switch {
		case errors.Is(err, agl.ErrInvalid): // it must not keep the others from ending
			m.config.Logger.Warn("a session is left open, since it cannot be read; cancel it", "rollout_id", r.RolloutID, "error", err)
		case err == nil:
			m.backdate(s, cmp.Or(r.Attempt.LastHeartbeatTime.V, r.Attempt.StartTime).Time())
		}
	}
	return nil
}

// backdate sets since when a session has been idle, unless it has had a call here.
func (m *Manager) backdate(s *Session, last time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.calls == 0 && last.Before(s.last) {
		s.last = last
	}
}

// ready reports whether sessions can call models.
func (m *Manager) ready() bool {
	select {
	case <-m.config.Ready:
		return true
	default:
		return m.config.Ready == nil
	}
}

// endAll ends the sessions that are closed or, while they can call since served, idle.
func (m *Manager) endAll(ctx context.Context, served time.Time) {
	m.mu.Lock()
	maps.DeleteFunc(m.gone, func(_ string, at time.Time) bool { return time.Since(at) > m.config.StoreTimeout })
	var over, idle []*Session
	for _, s := range m.byRollout {
		switch {
		case s.running > 0 || s.ending:
		case s.end != "":
			over = append(over, s)
		case !served.IsZero() && time.Since(s.last) >= s.idle && time.Since(served) >= min(idleGrace, s.idle):
			idle = append(idle, s)
		}
	}
	m.mu.Unlock()
	for _, s := range idle {
		ended, err := m.isIdle(ctx, s)
		if err != nil {
			m.away(ctx, &m.unended, unended, s.RolloutID, err)
		}
		if agl.Transient(err) || agl.IsContextError(err) { // the store would not answer for the others either
			break
		}
		if ended {
			over = append(over, s)
		}
	}
	for _, s := range over {
		select {
		case <-ctx.Done():
			return
		case m.slots <- struct{}{}:
		}
		m.setEnding(s, true)
		m.ends.Go(func() {
			if err := m.finish(ctx, s); err != nil {
				m.away(ctx, &m.unended, unended, s.RolloutID, err)
			}
			m.setEnding(s, false)
			<-m.slots
		})
	}
}

const unended = "a session could not be ended yet"

func (m *Manager) setEnding(s *Session, ending bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.ending = ending
}

// isIdle closes a session if it is idle at the other proxies, too, and reports whether it did.
// The store tells: each record of a call counts as a heartbeat of its attempt.
func (m *Manager) isIdle(ctx context.Context, s *Session) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, m.config.StoreTimeout)
	defer cancel()
	r, err := m.config.Store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: s.RolloutID})
	if err != nil && !errors.Is(err, agl.ErrNotFound) {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case s.running > 0 || time.Since(s.last) < s.idle:
		return false, nil
	case err != nil || !s.open(&r): // somebody else has ended it
		m.close(s, EndIdle)
		m.forget(s)
		return false, nil
	}
	// A heartbeat from further ahead was recorded while the store's clock was wrong.
	if at := r.Attempt.LastHeartbeatTime; at.Valid && time.Since(at.V.Time()).Abs() < s.idle {
		s.last = at.V.Time()
		return false, nil
	}
	m.close(s, EndIdle)
	return true, nil
}
