package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/storetest"
)

func openWith(t *testing.T, config store.Config) *store.Store {
	t.Helper()
	s, err := store.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t *testing.T, s *store.Store) {
	t.Helper()
	if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

func start(t *testing.T, s *store.Store, timeout, silence float64) agl.AttemptedRollout {
	t.Helper()
	config := agl.RolloutConfig{}
	if timeout > 0 {
		config.TimeoutSeconds = agl.Some(timeout)
	}
	if silence > 0 {
		config.UnresponsiveSeconds = agl.Some(silence)
	}
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Config: &config}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantAttempt checks the latest attempt's status as it is stored, without a
// call that makes the engine look.
func wantAttempt(t *testing.T, d driver.Driver, when, id string, want agl.AttemptStatus) *agl.Attempt {
	t.Helper()
	synctest.Wait()
	found, err := d.Rollouts(t.Context(), []string{id})
	if err != nil || len(found) != 1 || found[0].Attempt == nil {
		t.Fatalf("%s: found %v, error %v", when, found, err)
	}
	if got := found[0].Attempt.Status; got != want {
		t.Errorf("%s: attempt is %s, want %s", when, got, want)
	}
	return found[0].Attempt
}

// TestGrace stops the server for longer than runners may be silent.
func TestGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newMemory(t, storetest.OpenParams{})
		s := reopen(t, d)
		silent, heard, updated := start(t, s, 0, 30), start(t, s, 0, 30), start(t, s, 0, 30)
		timed, both := start(t, s, 40, 0), start(t, s, 40, 30)
		closeStore(t, s)
		time.Sleep(time.Minute)
		s = reopen(t, d)
		defer func() { closeStore(t, s) }()
		time.Sleep(10 * time.Millisecond)
		wantAttempt(t, d, "at the start", timed.RolloutID, agl.AttemptTimeout)
		wantAttempt(t, d, "at the start", both.RolloutID, agl.AttemptTimeout)
		time.Sleep(4 * time.Second)
		if _, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{{RolloutID: heard.RolloutID, AttemptID: heard.Attempt.AttemptID, SpanID: "s"}}}); err != nil {
			t.Fatal(err)
		}
		mode := agl.ModeVal
		if _, err := s.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: updated.RolloutID, Mode: &mode}); err != nil {
			t.Fatal(err)
		}
		fresh := start(t, s, 0, 2)
		time.Sleep(3 * time.Second)
		wantAttempt(t, d, "after 7 s", fresh.RolloutID, agl.AttemptUnresponsive) // began when the server was there
		for _, r := range []agl.AttemptedRollout{silent, updated} {
			wantAttempt(t, d, "after 7 s", r.RolloutID, agl.AttemptPreparing)
		}
		time.Sleep(4 * time.Second)
		for _, r := range []agl.AttemptedRollout{silent, updated} {
			wantAttempt(t, d, "after 11 s", r.RolloutID, agl.AttemptUnresponsive)
		}
		wantAttempt(t, d, "after 11 s", heard.RolloutID, agl.AttemptRunning)
		time.Sleep(24 * time.Second) // 31 s after its span
		wantAttempt(t, d, "in the end", heard.RolloutID, agl.AttemptUnresponsive)
	})
}

// TestGraceAfterAnOutage makes the database unavailable for longer than runners may be
// silent: their heartbeats could not be stored.
func TestGraceAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		s := openGate(t, g)
		silent, timed := start(t, s, 0, 5), start(t, s, 30, 0)
		lost := agl.Errorf(agl.CodeUnavailable, "the database is away")
		g.fail.Store(&lost)
		time.Sleep(time.Minute)
		g.fail.Store(nil)
		time.Sleep(2 * time.Second)
		wantAttempt(t, g.Driver, "when it is back", silent.RolloutID, agl.AttemptPreparing)
		wantAttempt(t, g.Driver, "when it is back", timed.RolloutID, agl.AttemptTimeout)
		time.Sleep(10 * time.Second)
		wantAttempt(t, g.Driver, "after the grace", silent.RolloutID, agl.AttemptUnresponsive)
	})
}

// hang has a commit take a while, as with a disk that hangs or a process that is suspended: heartbeats wait behind it.
func hang(t *testing.T, s *store.Store, g *gate, d time.Duration) {
	t.Helper()
	g.hold.Store(true)
	entered := make(chan error, 1)
	go func() {
		_, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{}}})
		entered <- err
	}()
	time.Sleep(d)
	g.release <- struct{}{}
	if err := <-entered; err != nil {
		t.Error(err)
	}
}

// TestGraceAfterAHang has a commit take longer than runners may be silent.
func TestGraceAfterAHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{release: make(chan struct{})}
		s := openGate(t, g)
		silent, timed := start(t, s, 0, 15), start(t, s, 20, 0)
		hang(t, s, g, 30*time.Second)
		wantAttempt(t, g.Driver, "when it goes on", silent.RolloutID, agl.AttemptPreparing)
		wantAttempt(t, g.Driver, "when it goes on", timed.RolloutID, agl.AttemptTimeout)
		time.Sleep(9 * time.Second)
		wantAttempt(t, g.Driver, "in the grace period", silent.RolloutID, agl.AttemptPreparing)
		time.Sleep(2 * time.Second)
		wantAttempt(t, g.Driver, "after the grace", silent.RolloutID, agl.AttemptUnresponsive)
	})
}

// TestOneGrace checks that an attempt without a runner ends also at a store that is always late, and at one whose clients set
// deadlines in the past.
func TestOneGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{release: make(chan struct{})}
		s := openGate(t, g)
		silent, later := start(t, s, 0, 15), start(t, s, 0, 40)
		hang(t, s, g, 30*time.Second)
		wantAttempt(t, g.Driver, "when it goes on", silent.RolloutID, agl.AttemptPreparing)
		hang(t, s, g, 15*time.Second)
		wantAttempt(t, g.Driver, "when it has hung again", silent.RolloutID, agl.AttemptUnresponsive)
		wantAttempt(t, g.Driver, "when it has hung again", later.RolloutID, agl.AttemptPreparing)
	})
	synctest.Test(t, func(t *testing.T) {
		g := &gate{release: make(chan struct{})}
		s := openGate(t, g)
		silent, updated := start(t, s, 0, 15), start(t, s, 0, 60)
		hang(t, s, g, 30*time.Second)
		time.Sleep(8 * time.Second)
		config := agl.RolloutConfig{UnresponsiveSeconds: agl.Some(1.0), MaxAttempts: 1}
		if _, err := s.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: updated.RolloutID, Config: &config}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		wantAttempt(t, g.Driver, "in the grace period", silent.RolloutID, agl.AttemptPreparing)
		time.Sleep(2 * time.Second)
		wantAttempt(t, g.Driver, "after the grace", silent.RolloutID, agl.AttemptUnresponsive)
	})
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		s := openGate(t, g)
		silent, updated := start(t, s, 0, 15), start(t, s, 0, 60)
		time.Sleep(14 * time.Second)
		config := agl.RolloutConfig{TimeoutSeconds: agl.Some(1.0), MaxAttempts: 1}
		if _, err := s.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: updated.RolloutID, Config: &config}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		wantAttempt(t, g.Driver, "with a timeout in the past", updated.RolloutID, agl.AttemptTimeout)
		wantAttempt(t, g.Driver, "after its 15 s", silent.RolloutID, agl.AttemptUnresponsive)
	})
}

// TestDefaultUnresponsive loses the answer of a claim.
func TestDefaultUnresponsive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newMemory(t, storetest.OpenParams{})
		s := openWith(t, store.Config{Driver: d, DefaultUnresponsive: 10 * time.Minute})
		defer closeStore(t, s)
		lost, own := start(t, s, 0, 0), start(t, s, 0, 3600)
		if c := lost.Config.UnresponsiveSeconds; c.Valid {
			t.Errorf("the config says %v, want null", c)
		}
		time.Sleep(10 * time.Minute)
		wantAttempt(t, d, "after 10 minutes", lost.RolloutID, agl.AttemptPreparing)
		time.Sleep(time.Second)
		a := wantAttempt(t, d, "after that", lost.RolloutID, agl.AttemptUnresponsive)
		if o, _ := a.Outcome(); o.Kind != agl.OutcomeUnresponsive || !strings.Contains(o.Message, "default") {
			t.Errorf("outcome %+v, want one that names the default", o)
		}
		wantAttempt(t, d, "after that", own.RolloutID, agl.AttemptPreparing)
	})
}

func TestConfigLimits(t *testing.T) {
	t.Parallel()
	for _, config := range []store.Config{
		{}, {DefaultUnresponsive: -1},
	} {
		if config != (store.Config{}) {
			config.Driver = newMemory(t, storetest.OpenParams{})
		}
		if _, err := store.New(t.Context(), config); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: error %v, want invalid", config, err)
		}
	}
}

// addSpan stores a span of about a kilobyte.
func addSpan(t *testing.T, s *store.Store, r *agl.AttemptedRollout, id string) {
	t.Helper()
	span := agl.Span{
		RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: id,
		Attributes: agl.Attributes(`{"x":"` + strings.Repeat(id, 1000/len(id)) + `"}`),
	}
	if _, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}, IssueSequenceIDs: true}); err != nil {
		t.Fatal(err)
	}
}

func setRollout(t *testing.T, s *store.Store, id string, status agl.RolloutStatus) {
	t.Helper()
	if _, err := s.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: id, Status: &status}); err != nil {
		t.Fatal(err)
	}
}

// TestResync changes the database behind the engine without a notice that says what
// changed.
func TestResync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{notices: make(chan driver.Notice)}
		s := openGate(t, g)
		peer := reopen(t, g.Driver)
		ended, gone := start(t, s, 0, 0), start(t, s, 0, 0)
		// Alone, neither server knows the other's deadlines.
		claimed, finished := start(t, peer, 0, 60), start(t, s, 20, 0)
		waited := make(chan []agl.Rollout, 1)
		go func() {
			got, err := s.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{RolloutIDs: []string{ended.RolloutID, gone.RolloutID}})
			if err != nil {
				t.Error(err)
			}
			waited <- got
		}()
		waiting := block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour})
		events := make(chan agl.Event, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for e, err := range s.Events(ctx, agl.EventsParams{}) {
				if err == nil {
					events <- e
				}
				return
			}
		}()
		synctest.Wait()
		setRollout(t, peer, ended.RolloutID, agl.RolloutSucceeded)
		setRollout(t, peer, finished.RolloutID, agl.RolloutSucceeded)
		if _, err := peer.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: gone.RolloutID}); err != nil {
			t.Fatal(err)
		}
		if err := peer.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: gone.RolloutID}); err != nil {
			t.Fatal(err)
		}
		enqueue(t, peer, 1, agl.RolloutConfig{})
		closeStore(t, peer)
		blocked(t, "the dequeue", waiting)

		// What fails is tried again.
		away := errors.New("the database is away")
		g.fail.Store(&away)
		g.notices <- driver.Notice{Resync: true}
		time.Sleep(3 * time.Second)
		g.fail.Store(nil)
		time.Sleep(2 * time.Second)
		if got := arrived(t, "the dequeue", waiting); len(got.result.Rollouts) != 1 {
			t.Errorf("got %+v, want what the peer enqueued", got)
		}
		if got := <-waited; len(got) != 1 || got[0].RolloutID != ended.RolloutID {
			t.Errorf("waited for %v, want what is left", got)
		}
		<-events
		time.Sleep(61 * time.Second)
		wantAttempt(t, g.Driver, "after a minute", claimed.RolloutID, agl.AttemptUnresponsive)
		wantAttempt(t, g.Driver, "after a minute", finished.RolloutID, agl.AttemptPreparing)
	})
}

// pinging is a driver whose database can be unavailable.
type pinging struct {
	driver.Driver

	err error
}

func (p *pinging) Ping(context.Context) error { return p.err }

func TestReady(t *testing.T) {
	t.Parallel()
	d := &pinging{Driver: newMemory(t, storetest.OpenParams{})}
	s := reopen(t, d)
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("error %v, want ready", err)
	}
	d.err = agl.Errorf(agl.CodeExhausted, "the disk is full")
	if err := s.Ready(t.Context()); !errors.Is(err, agl.ErrExhausted) {
		t.Errorf("error %v, want that of the driver", err)
	}
	d.err = nil
	closeStore(t, s)
	if err := s.Ready(t.Context()); !errors.Is(err, agl.ErrUnavailable) {
		t.Errorf("error %v, want unavailable", err)
	}
}

// rude is an observer that panics.
type rude struct{}

func (rude) ObserveStore(string, error, time.Duration)                 { panic("rude") }
func (rude) ObserveDriver(string, error, time.Duration)                { panic("rude") }
func (rude) ObserveRollout(agl.RolloutStatus, agl.Mode, time.Duration) { panic("rude") }

// TestObserverThatPanics: a panic of the observer fails no call.
func TestObserverThatPanics(t *testing.T) {
	t.Parallel()
	s := openWith(t, store.Config{Driver: newMemory(t, storetest.OpenParams{}), Observer: rude{}})
	defer closeStore(t, s)
	r := start(t, s, 0, 0)
	setRollout(t, s, r.RolloutID, agl.RolloutSucceeded)
	got, err := s.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{RolloutIDs: []string{r.RolloutID}})
	if err != nil || len(got) != 1 {
		t.Errorf("waited for %v, error %v", got, err)
	}
}
