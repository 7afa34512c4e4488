package store

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/sqlite"
)

// openAfter opens a store in a process whose machine was booted at a time, and whose system's clock is
// off by as much.
func openAfter(t *testing.T, d driver.Driver, boot string, booted time.Time, off time.Duration) *Store {
	t.Helper()
	clock := &steadyClock{
		start: time.Now(), offset: off, system: func() time.Time { return time.Now().Round(0).Add(off) },
		uptime: func() (string, time.Duration) { return boot, time.Since(booted) },
	}
	s, err := New(t.Context(), Config{Driver: d, Clock: clock, notesClock: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func startWithLimits(t *testing.T, s *Store, c agl.RolloutConfig) string {
	t.Helper()
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(`1`), Config: &c}})
	if err != nil {
		t.Fatal(err)
	}
	return r.RolloutID
}

func wantAttempt(t *testing.T, s *Store, when, rollout string, want agl.AttemptStatus) {
	t.Helper()
	a, err := s.GetLatestAttempt(t.Context(), agl.GetLatestAttemptParams{RolloutID: rollout})
	if err != nil || a.Status != want {
		t.Errorf("%s the attempt is %s, error %v, want %s", when, a.Status, err, want)
	}
}

// TestClockSet restarts a store after the system's clock was set: attempts end when they have had
// their time, which has gone on meanwhile, and silent ones when they have had their grace.
func TestClockSet(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, tc := range []struct {
		off    time.Duration
		reboot bool
	}{{-day, false}, {-time.Hour, false}, {0, false}, {time.Hour, false}, {day, false}, {-day, true}, {-time.Hour, true}, {0, true}} {
		t.Run(fmt.Sprintf("by %s, reboot %t", tc.off, tc.reboot), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
				if err != nil {
					t.Fatal(err)
				}
				booted := time.Now().Add(-time.Hour)
				s := openAfter(t, d, "boot 1", booted, 0)
				timed := startWithLimits(t, s, agl.RolloutConfig{TimeoutSeconds: agl.Some(30.0)})
				silent := startWithLimits(t, s, agl.RolloutConfig{UnresponsiveSeconds: agl.Some(5.0)})
				time.Sleep(2 * time.Second)
				closeStore(t, s)
				passed := 8 * time.Second
				time.Sleep(passed - 2*time.Second)
				boot := "boot 1"
				if tc.reboot {
					boot, booted = "boot 2", time.Now()
				}
				if tc.reboot && tc.off < 0 {
					passed = 0 // nobody knows how long the machine was off
				}
				s = openAfter(t, d, boot, booted, tc.off)
				defer closeStore(t, s)
				wantAttempt(t, s, "at once", timed, agl.AttemptPreparing)
				wantAttempt(t, s, "at once", silent, agl.AttemptPreparing)
				time.Sleep(9 * time.Second)
				wantAttempt(t, s, "within the grace", silent, agl.AttemptPreparing)
				time.Sleep(2 * time.Second)
				wantAttempt(t, s, "after the grace", silent, agl.AttemptUnresponsive)
				time.Sleep(18*time.Second - passed)
				wantAttempt(t, s, "before its time", timed, agl.AttemptPreparing)
				time.Sleep(2 * time.Second)
				wantAttempt(t, s, "after its time", timed, agl.AttemptTimeout)
			})
		})
	}
}

// TestClockSetInDatabase does the same with a file, by what this machine says of its uptime, over two
// restarts. When no attempt runs, the system's clock counts again.
func TestClockSetInDatabase(t *testing.T) {
	t.Parallel()
	boot, up := uptime()
	if boot == "" {
		t.Skip("this machine has no id of its boot")
	}
	open := func(file string, passed, off time.Duration) *Store {
		d, err := sqlite.Open(t.Context(), sqlite.Config{Path: file})
		if err != nil {
			t.Fatal(err)
		}
		return openAfter(t, d, boot, time.Now().Add(-up-passed), off)
	}
	for _, off := range []time.Duration{-24 * time.Hour, -time.Hour, time.Hour, 24 * time.Hour} {
		file := filepath.Join(t.TempDir(), "agl.db")
		s := open(file, 0, 0)
		began := s.clock.Now()
		rollout := startWithLimits(t, s, agl.RolloutConfig{TimeoutSeconds: agl.Some(1800.0)})
		closeStore(t, s)
		s = open(file, 10*time.Minute, off+10*time.Minute)
		if shows := s.clock.Now().Sub(began); (shows - 10*time.Minute).Abs() > 5*time.Minute {
			t.Errorf("set by %s: ten minutes later the clock shows %s", off, shows)
		}
		wantAttempt(t, s, "in its time", rollout, agl.AttemptPreparing)
		closeStore(t, s)
		s = open(file, 40*time.Minute, off+40*time.Minute)
		wantAttempt(t, s, "after its time", rollout, agl.AttemptTimeout)
		closeStore(t, s)
		s = open(file, time.Hour, off)
		if shows := s.clock.Now().Sub(began); (shows - off).Abs() > 5*time.Minute {
			t.Errorf("set by %s: without attempts the clock shows %s", off, shows)
		}
		closeStore(t, s)
	}
}

// TestClockFollowsSystem suspends the machine of a store for eight hours, which its monotonic clock does not count: an attempt
// keeps its time, and once none has a deadline the store's times are right again. The next process knows that.
func TestClockFollowsSystem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		const suspended = 8 * time.Hour
		began, off := time.Now(), time.Duration(0)
		clock := &steadyClock{
			start: began, system: func() time.Time { return time.Now().Round(0).Add(off) },
			uptime: func() (string, time.Duration) { return "boot", time.Since(began) + time.Hour },
		}
		s, err := New(t.Context(), Config{Driver: d, Clock: clock, notesClock: true})
		if err != nil {
			t.Fatal(err)
		}
		timed := startWithLimits(t, s, agl.RolloutConfig{TimeoutSeconds: agl.Some(30.0)})
		off = suspended
		other := startWithLimits(t, s, agl.RolloutConfig{})
		wantAttempt(t, s, "after the suspension", timed, agl.AttemptPreparing)
		wantStart := func(when, rollout string, want time.Duration) {
			t.Helper()
			r, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: rollout})
			if got := r.StartTime.Time().Sub(began); err != nil || (got-want).Abs() > time.Minute {
				t.Errorf("%s a rollout starts %s after the beginning (%v), want %s", when, got, err, want)
			}
		}
		wantStart("while an attempt has a deadline", other, 0)
		time.Sleep(31 * time.Second)
		wantAttempt(t, s, "after its time", timed, agl.AttemptTimeout)
		last := startWithLimits(t, s, agl.RolloutConfig{TimeoutSeconds: agl.Some(30.0)})
		wantStart("afterwards", last, suspended)
		synctest.Wait() // for the note of the clock
		closeStore(t, s)

		s = openAfter(t, d, "boot", began.Add(-time.Hour), suspended)
		defer closeStore(t, s)
		if got := s.clock.Now().Sub(began); (got - suspended).Abs() > time.Minute {
			t.Errorf("the next process shows %s after the beginning, want %s", got, suspended)
		}
		wantAttempt(t, s, "in the next process", last, agl.AttemptPreparing)
	})
}

// TestSteadyClock: the clock shows the time that has passed, whatever the system's says.
func TestSteadyClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSteadyClock()
		c.notBefore(c.start.Add(time.Hour)) // as if the system's clock had been set back since
		c.notBefore(c.start)
		time.Sleep(time.Minute)
		if got := c.Now().Sub(c.start); got != time.Hour+time.Minute {
			t.Errorf("after a minute the clock has moved by %v, want an hour and a minute", got)
		}
	})
}

// A client whose clock is wrong sets neither the clock of the next process nor the deadline of a dead agent.
func TestHeartbeatAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s := openAfter(t, d, "boot", began, 0)
		ahead := startWithLimits(t, s, agl.RolloutConfig{UnresponsiveSeconds: agl.Some(30.0)})
		milliseconds := agl.TimestampOf(began) * 1000
		p := agl.UpdateAttemptParams{RolloutID: ahead, AttemptID: agl.LatestAttempt, LastHeartbeatTime: &milliseconds}
		if _, err := s.UpdateAttempt(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		s = openAfter(t, d, "boot", began, 0)
		defer closeStore(t, s)
		if shows := s.clock.Now().Sub(began); shows.Abs() > time.Minute {
			t.Errorf("the next process is ahead by %s", shows)
		}
		time.Sleep(time.Minute)
		wantAttempt(t, s, "a minute later", ahead, agl.AttemptUnresponsive)
	})
}
