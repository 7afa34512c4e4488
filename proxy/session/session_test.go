package session_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/session"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failing is a store whose attempts cannot be ended for a while.
type failing struct {
	agl.Store
	left atomic.Int64
}

func (f *failing) UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error) {
	if f.left.Add(-1) >= 0 {
		return agl.Attempt{}, agl.Errorf(agl.CodeUnavailable, "the store is away")
	}
	return f.Store.UpdateAttempt(ctx, p)
}

// open starts a manager that closes with the test.
func open(t *testing.T, config session.Config) *session.Manager {
	t.Helper()
	config.Flush = func(context.Context, string, string) error { return nil }
	config.StoreTimeout, config.Logger = 10*time.Second, slog.New(slog.DiscardHandler)
	m := session.New(config)
	m.Start(t.Context())
	t.Cleanup(m.Close)
	return m
}

func status(t *testing.T, s agl.Store, id string) agl.RolloutStatus {
	t.Helper()
	r, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: id})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status
}

// A session that cannot be read keeps no other from its end, and none is begun that could not.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memorytest.Open(t)
		var ids []string
		for _, metadata := range []string{`{"agl.session":"a"}`, `{"agl.session":"b","agl.session_models":5}`, `{"agl.session":"c"}`} {
			r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Metadata: []byte(metadata)}})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, r.RolloutID)
		}
		m := open(t, session.Config{Store: store, IdleTimeout: time.Minute})
		for _, p := range []session.NewSession{
			{Metadata: map[string]jsontext.Value{"agl.session_models": jsontext.Value("5")}},
			{Metadata: map[string]jsontext.Value{"agl.session": jsontext.Value(`"d"`)}},
			{Metadata: map[string]jsontext.Value{"agl.session_idle": jsontext.Value("1")}},
			{Metadata: map[string]jsontext.Value{session.MetadataUser: jsontext.Value("5")}},
			{Metadata: map[string]jsontext.Value{session.MetadataUser: jsontext.Value(`"` + strings.Repeat("x", 257) + `"`)}},
			{User: strings.Repeat("x", 257)},
		} {
			if _, _, err := m.Create(t.Context(), p); !errors.Is(err, agl.ErrInvalid) {
				t.Errorf("%.100v: got %v, want invalid", p, err)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for i, want := range []agl.RolloutStatus{agl.RolloutSucceeded, agl.RolloutPreparing, agl.RolloutSucceeded} {
			if got := status(t, store, ids[i]); got != want {
				t.Errorf("session %d is %s, want %s", i, got, want)
			}
		}
		if page, err := store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{}); err != nil || page.Total != len(ids) {
			t.Errorf("there are %d rollouts, %v", page.Total, err)
		}
	})
}

// Two users with the same name of a session have a session each, also at a proxy that finds them in the store.
func TestNamesOfUsers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memorytest.Open(t)
		one := open(t, session.Config{Store: store, IdleTimeout: time.Hour})
		users := []string{"ada", "bob", ""}
		sessions := map[string]*session.Session{}
		for _, user := range users {
			s, _, err := one.Named(t.Context(), "chat-1", user, "")
			if err != nil {
				t.Fatal(err)
			}
			sessions[user] = s
		}
		if err := one.End(t.Context(), sessions["ada"], session.EndCall); err != nil {
			t.Fatal(err)
		}
		other := open(t, session.Config{Store: store, IdleTimeout: time.Hour})
		synctest.Wait()
		for _, m := range []*session.Manager{one, other} {
			again := map[string]bool{}
			for _, user := range users {
				s, _, err := m.Named(t.Context(), "chat-1", user, "")
				if err != nil {
					t.Fatal(err)
				}
				again[s.RolloutID] = true
				if same := s.RolloutID == sessions[user].RolloutID; same != (user != "ada") {
					t.Errorf("%q: got %s, had %s", user, s.RolloutID, sessions[user].RolloutID)
				}
			}
			if len(again) != len(users) {
				t.Errorf("%d users have %d sessions", len(users), len(again))
			}
		}
	})
}

// counting counts the requests that look for a session or start one.
type counting struct {
	agl.Store
	n atomic.Int64
}

func (c *counting) StartRollout(ctx context.Context, p agl.StartRolloutParams) (agl.AttemptedRollout, error) {
	c.n.Add(1)
	return c.Store.StartRollout(ctx, p)
}

func (c *counting) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	c.n.Add(1)
	return c.Store.QueryRollouts(ctx, p)
}

// A program may give each of its sessions the same name, at any proxy: each is a rollout of its own, and none takes longer to begin.
// Those of other users, with other consent, or deleted meanwhile, are passed over.
func TestNameIsUsedOften(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"default", strings.Repeat("long", 100)} {
		t.Run(name[:4], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { useOften(t, name) })
		})
	}
}

func useOften(t *testing.T, name string) {
	t.Helper()
	store := &counting{Store: memorytest.Open(t)}
	one, other := open(t, session.Config{Store: store, IdleTimeout: time.Hour}), open(t, session.Config{Store: store, IdleTimeout: time.Hour})
	synctest.Wait()
	const most = 1200
	seen, before := map[string]bool{}, store.n.Load()
	for i := range most {
		time.Sleep(100 * time.Millisecond)
		consent := []string{"", "yes"}[i/100%2]
		m, user := []*session.Manager{one, other}[i%2], []string{"", "ada"}[i/2%2]
		s, _, err := m.Named(t.Context(), name, user, consent)
		if err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		if seen[s.RolloutID] {
			t.Fatalf("session %d is one that has ended", i)
		}
		seen[s.RolloutID] = true
		if same, _, err := one.Named(t.Context(), name, user, consent); err != nil || same.RolloutID != s.RolloutID {
			t.Fatalf("session %d: at the first proxy it is %+v, %v", i, same, err)
		}
		if err := m.End(t.Context(), s, session.EndCall); err != nil {
			t.Fatal(err)
		}
		if one.Cancelled(s.RolloutID) != (m == other) {
			t.Errorf("session %d: the first proxy knows it otherwise", i)
		}
		if i%10 == 0 {
			if err := store.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: s.RolloutID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := store.n.Load() - before; n > 8*most {
		t.Errorf("%d requests for %d sessions", n, most)
	}
	if found, err := other.Find(t.Context(), name, "ada"); err != nil || !seen[found] {
		t.Errorf("found %q, %v", found, err)
	}
}

// slow is a store that answers a second after it has read a rollout, and ends an attempt after half of that.
type slow struct{ agl.Store }

func (s slow) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	r, err := s.Store.GetRollout(ctx, p)
	time.Sleep(time.Second)
	return r, err
}

func (s slow) UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error) {
	time.Sleep(time.Second / 2)
	return s.Store.UpdateAttempt(ctx, p)
}

// A name that is used again at once begins another session, also if the store has read the first one before its end and answers after that.
func TestNameIsUsedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := open(t, session.Config{Store: slow{memorytest.Open(t)}, IdleTimeout: time.Hour})
		synctest.Wait()
		seen := map[string]bool{}
		for i := range 3 {
			s, _, err := m.Named(t.Context(), "default", "", "")
			if err != nil || seen[s.RolloutID] {
				t.Fatalf("session %d: %+v, %v, after %v", i, s, err, seen)
			}
			seen[s.RolloutID] = true
			leave, ok := m.Enter(s)
			if !ok {
				t.Fatalf("session %d takes no call", i)
			}
			leave(true)
		}
	})
}

// An end that the store does not take is repeated until it does.
func TestEndIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Store: memorytest.Open(t)}
		m := open(t, session.Config{Store: store, IdleTimeout: time.Hour})
		s, _, err := m.Named(t.Context(), "s", "", "")
		if err != nil {
			t.Fatal(err)
		}
		store.left.Store(4)
		if err := m.End(t.Context(), s, session.EndCall); !errors.Is(err, agl.ErrUnavailable) {
			t.Fatalf("got %v, want the store's error", err)
		}
		if _, ok := m.Enter(s); ok {
			t.Error("a session that is ending takes a call")
		}
		time.Sleep(time.Minute)
		if got := status(t, store, s.RolloutID); got != agl.RolloutSucceeded {
			t.Errorf("the session is %s after a minute", got)
		}
		if err := m.End(t.Context(), s, session.EndCall); !errors.Is(err, agl.ErrIllegalState) {
			t.Errorf("ended again: got %v", err)
		}
	})
}

// A session that has ended at one proxy takes no call at another one, and its name begins the next one there, unless the store is away.
func TestEndedAtAnotherProxy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &awayStore{Store: memorytest.Open(t)}
		one, other := open(t, session.Config{Store: store, IdleTimeout: time.Hour}), open(t, session.Config{Store: store, IdleTimeout: time.Hour})
		synctest.Wait()
		call := func(m *session.Manager, s *session.Session, err error) *session.Session {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			leave, ok := m.Enter(s)
			if !ok {
				t.Fatal("the session takes no call")
			}
			leave(false)
			return s
		}
		named := func(m *session.Manager) *session.Session {
			t.Helper()
			s, _, err := m.Named(t.Context(), "chat", "ada", "")
			return call(m, s, err)
		}
		first := named(one)
		withKey, key, err := one.Create(t.Context(), session.NewSession{Key: "a key of the program's own"})
		call(one, withKey, err)
		withOurs, ours, err := one.Create(t.Context(), session.NewSession{})
		call(one, withOurs, err)
		for _, s := range []*session.Session{named(other), withKey, withOurs} {
			at, _, err := other.ByID(t.Context(), s.RolloutID)
			if err == nil {
				err = other.End(t.Context(), at, session.EndCall)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		next := named(one)
		if next.RolloutID == first.RolloutID {
			t.Error("the first proxy goes on with a session that has ended")
		}
		if s, found, err := one.ByKey(t.Context(), key); found || err != nil {
			t.Errorf("the key of an ended session gives %+v, %v", s, err)
		}
		if _, _, err := one.ByKey(t.Context(), ours); !errors.Is(err, agl.ErrIllegalState) {
			t.Errorf("the key of an ended session: %v", err)
		}
		if same := named(other); same.RolloutID != next.RolloutID {
			t.Errorf("the proxies have the sessions %s and %s", next.RolloutID, same.RolloutID)
		}
		time.Sleep(10 * time.Second)
		store.away.Store(true)
		for range 3 {
			asked := store.asked.Load()
			if same := named(one); same.RolloutID != next.RolloutID || store.asked.Load() > asked+1 {
				t.Errorf("while the store is away: got %s, had %s", same.RolloutID, next.RolloutID)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// awayStore is a store that answers nothing while it is away.
type awayStore struct {
	agl.Store
	away  atomic.Bool
	asked atomic.Int64
}

func (a *awayStore) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	if a.asked.Add(1); a.away.Load() {
		return agl.AttemptedRollout{}, agl.Errorf(agl.CodeUnavailable, "the store is away")
	}
	return a.Store.GetRollout(ctx, p)
}

// While the store is away, sessions that are to end are not all tried again every few seconds, and the log has a line in half a minute.
func TestIdleWhileStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const sessions = 300
		store := &awayStore{Store: memorytest.Open(t)}
		var log bytes.Buffer
		m := session.New(session.Config{
			Store: store, IdleTimeout: 10 * time.Minute, StoreTimeout: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Flush: func(context.Context, string, string) error { return nil },
		})
		m.Start(t.Context())
		defer m.Close()
		for i := range sessions {
			if _, _, err := m.Named(t.Context(), strconv.Itoa(i), "", ""); err != nil {
				t.Fatal(err)
			}
		}
		store.away.Store(true)
		time.Sleep(9 * time.Minute)
		before := store.asked.Load()
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if n := store.asked.Load() - before; n < 10 || n > 150 {
			t.Errorf("the store was asked %d times in ten minutes", n)
		}
		if n := strings.Count(log.String(), "could not be ended yet"); n < 15 || n > 21 {
			t.Errorf("%d lines in ten minutes, want one in half a minute", n)
		}
		store.away.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		page, err := store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}})
		if err != nil || page.Total != sessions {
			t.Errorf("%d of %d sessions have ended, %v", page.Total, sessions, err)
		}
	})
}

// A session is idle when no proxy has calls of it, and none of its calls is running.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const idle = 10 * time.Minute
		store := memorytest.Open(t)
		one := open(t, session.Config{Store: store, IdleTimeout: idle})
		s, _, err := one.Named(t.Context(), "s", "", "")
		if err != nil {
			t.Fatal(err)
		}
		other := open(t, session.Config{Store: store, IdleTimeout: idle}) // adopts it
		for i := range 6 {
			time.Sleep(idle / 2)
			span := agl.Span{RolloutID: s.RolloutID, AttemptID: s.AttemptID, SpanID: strconv.Itoa(i), TraceID: "t", Name: "call"}
			if _, err := store.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}, IssueSequenceIDs: true}); err != nil {
				t.Fatal(err)
			}
		}
		if got := status(t, store, s.RolloutID); got != agl.RolloutRunning {
			t.Fatalf("a session with calls at another proxy is %s", got)
		}
		same, _, err := other.Named(t.Context(), "s", "", "")
		if err != nil || same.RolloutID != s.RolloutID {
			t.Fatalf("got %+v, %v, want rollout %s", same, err, s.RolloutID)
		}
		leave, ok := one.Enter(s)
		leaveOther, okOther := other.Enter(same)
		if !ok || !okOther {
			t.Fatal("an open session takes no call")
		}
		time.Sleep(3 * idle)
		if got := status(t, store, s.RolloutID); got != agl.RolloutRunning {
			t.Fatalf("a session with running calls is %s", got)
		}
		leave(false)
		leaveOther(false)
		time.Sleep(2 * idle)
		if got := status(t, store, s.RolloutID); got != agl.RolloutSucceeded {
			t.Errorf("an idle session is %s", got)
		}
	})
}

// jumped is a store whose clock was a day ahead when a session had its calls, and was put right since.
type jumped struct{ agl.Store }

func (s jumped) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	r, err := s.Store.GetRollout(ctx, p)
	if err == nil {
		r.Attempt.LastHeartbeatTime = agl.Some(agl.TimestampOf(r.StartTime.Time().AddDate(0, 0, 1)))
	}
	return r, err
}

// A session whose last call was recorded while the store's clock was ahead ends as others do.
func TestIdleAfterClockJump(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const idle = 10 * time.Minute
		store := memorytest.Open(t)
		m := open(t, session.Config{Store: jumped{store}, IdleTimeout: idle})
		s, _, err := m.Named(t.Context(), "s", "", "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * idle)
		if got := status(t, store, s.RolloutID); got != agl.RolloutSucceeded {
			t.Errorf("an idle session is %s", got)
		}
	})
}

// There is a most of open sessions, and a key opens its own only.
func TestKeysAndBounds(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	m := open(t, session.Config{Store: store, IdleTimeout: time.Hour, Max: 2})
	s, key, err := m.Create(t.Context(), session.NewSession{User: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Create(t.Context(), session.NewSession{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Create(t.Context(), session.NewSession{}); !errors.Is(err, agl.ErrExhausted) {
		t.Errorf("a third session: got %v", err)
	}
	if got, found, err := m.ByKey(t.Context(), key); err != nil || !found || got.RolloutID != s.RolloutID {
		t.Errorf("got %+v, %v, %v", got, found, err)
	}
	plain, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{key + "x", session.KeyPrefix + plain.RolloutID + ".x", session.KeyPrefix + s.RolloutID, session.KeyPrefix + "nope.x"} {
		if _, found, err := m.ByKey(t.Context(), wrong); !found || agl.ErrorCode(err) != agl.CodeUnauthorized {
			t.Errorf("%s: got %v, %v", wrong, found, err)
		}
	}
	for _, other := range []string{"", "sk-proj-1", "agl_x_y"} {
		if _, found, err := m.ByKey(t.Context(), other); found || err != nil {
			t.Errorf("%s: got %v, %v", other, found, err)
		}
	}
}

// A session is idle since its last call, also at a proxy that was started later: one that is restarted often would otherwise end none. A program that has
// found neither a proxy nor a model for longer than that has a minute to go on.
func TestIdleAcrossRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memorytest.Open(t)
		config := session.Config{Store: store, IdleTimeout: 30 * time.Minute}
		one := open(t, config)
		begin := func(name string) *session.Session {
			s, _, err := one.Named(t.Context(), name, "", "")
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		first := begin("chat")
		for range 5 {
			time.Sleep(5 * time.Minute)
			one.Close()
			one = open(t, config)
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if got := status(t, store, first.RolloutID); got != agl.RolloutSucceeded {
			t.Errorf("the session is %s after 31 minutes and five restarts", got)
		}
		sessions := []*session.Session{begin("goes on"), begin("is over")}
		one.Close()
		time.Sleep(time.Hour)
		ready := make(chan struct{})
		config.Ready = ready
		one = open(t, config)
		time.Sleep(10 * time.Minute)
		close(ready)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		s := begin("goes on")
		leave, ok := one.Enter(s)
		if !ok || s.RolloutID != sessions[0].RolloutID {
			t.Fatalf("50 s after an hour without a model the session is %s, had %s", s.RolloutID, sessions[0].RolloutID)
		}
		leave(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for i, want := range []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutSucceeded} {
			if got := status(t, store, sessions[i].RolloutID); got != want {
				t.Errorf("session %d is %s three minutes after an hour without a model, want %s", i, got, want)
			}
		}
	})
}
