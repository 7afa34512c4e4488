package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/memory"
)

// laterClock is the system's clock before it was set back by an hour.
type laterClock struct{ *steadyClock }

func (c laterClock) Now() time.Time { return c.steadyClock.Now().Add(time.Hour) }

// TestClockSetBack restarts a store after the system's clock was set back: an attempt still
// ends when it has had its time.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		open := func(clock Clock) *Store {
			s, err := New(t.Context(), Config{Driver: d, Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		closeStore := func(s *Store) {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		s := open(laterClock{newSteadyClock()})
		config := agl.RolloutConfig{TimeoutSeconds: agl.Some(30.0)}
		r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(`1`), Config: &config}})
		if err != nil {
			t.Fatal(err)
		}
		closeStore(s)
		s = open(nil)
		defer closeStore(s)
		for _, tc := range []struct {
			after time.Duration
			want  agl.AttemptStatus
		}{{29 * time.Second, agl.AttemptPreparing}, {2 * time.Second, agl.AttemptTimeout}} {
			time.Sleep(tc.after)
			a, err := s.GetLatestAttempt(t.Context(), agl.GetLatestAttemptParams{RolloutID: r.RolloutID})
			if err != nil || a.Status != tc.want {
				t.Errorf("after another %v the attempt is %s, error %v, want %s", tc.after, a.Status, err, tc.want)
			}
		}
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
