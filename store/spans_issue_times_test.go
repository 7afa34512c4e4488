package store_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/storetest"
)

// Spans that come late get the ids that were next when they ended.
func TestOrderByTime(t *testing.T) {
	t.Parallel()
	clock := storetest.NewManualClock(time.Unix(1_800_000_000, 0))
	s := openAt(t, clock)
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	now := func() agl.Timestamp { return agl.TimestampOf(clock.Now()) }
	ended := map[string]agl.Timestamp{"before the attempt": now() - 1}
	for i := range 3 { // a call, then a reward, a second each
		clock.Advance(time.Second)
		if _, err := s.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: r.RolloutID, Count: 2}); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Second)
		ended[fmt.Sprint("reward ", i)] = now()
	}
	for _, tt := range []struct {
		id     string
		byTime bool
		want   int64
	}{
		{"reward 0", true, 3},
		{"reward 1", true, 5},
		{"reward 2", true, 7},
		{"before the attempt", true, 8}, // by another clock
		{"no time", true, 9},
		{"reward 0", false, 10},
	} {
		span := agl.Span{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: fmt.Sprint(tt.id, tt.byTime), Name: "late",
		}
		if at, ok := ended[tt.id]; ok {
			span.StartTime, span.EndTime = agl.Some(at-0.5), agl.Some(at)
		}
		got, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}, IssueSequenceIDs: true, OrderByTime: tt.byTime})
		if err != nil {
			t.Fatal(err)
		}
		if id := got.Stored[0].SequenceID; id != tt.want {
			t.Errorf("%s, by time %t: got the id %d, want %d", tt.id, tt.byTime, id, tt.want)
		}
	}
}

// When the clock steps back, what was reserved before it did was reserved before everything that ends from then on.
func TestOrderByTimeAfterAStepOfTheClock(t *testing.T) {
	t.Parallel()
	clock := &steppedClock{ManualClock: storetest.NewManualClock(time.Unix(1_800_000_000, 0))}
	s := openAt(t, clock)
	clock.behind.Store(3600) // spans from before the attempt are another clock's
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	clock.behind.Store(0)
	const calls, step = 9, 6
	var ended []agl.Timestamp
	for i := range calls { // a call, then a reward, a second each
		if i == step {
			clock.behind.Store(7)
		}
		clock.Advance(time.Second)
		if _, err := s.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: r.RolloutID}); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Second)
		ended = append(ended, agl.TimestampOf(clock.Now()))
	}
	for i, want := range map[int]int64{step: step + 2, step + 1: step + 3} {
		span := agl.Span{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: fmt.Sprint("reward ", i), Name: "late",
			StartTime: agl.Some(ended[i]), EndTime: agl.Some(ended[i]),
		}
		got, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}, IssueSequenceIDs: true, OrderByTime: true})
		if err != nil {
			t.Fatal(err)
		}
		if id := got.Stored[0].SequenceID; id != want {
			t.Errorf("the reward of call %d has the id %d, want %d, that of the next call", i+1, id, want)
		}
	}
}

// steppedClock is a clock that can be set back.
type steppedClock struct {
	*storetest.ManualClock
	behind atomic.Int64 // seconds
}

func (c *steppedClock) Now() time.Time {
	return c.ManualClock.Now().Add(-time.Duration(c.behind.Load()) * time.Second)
}

// openAt returns a store in memory with a clock. It is closed with the test.
func openAt(t *testing.T, clock store.Clock) *store.Store {
	t.Helper()
	driver, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.New(t.Context(), store.Config{Driver: driver, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}
