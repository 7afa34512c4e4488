package tracer_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
)

// An annotation takes its sequence id at once, and so do the spans before it.
func TestAnnotationTakesItsSequenceID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spanStore{}
		ctx, trace := start(t, newTracer(t, tracer.Config{Store: store}))
		_, step := tracer.Start(ctx, "step")
		step.End()
		for _, emit := range []func() (agl.Span, error){
			func() (agl.Span, error) { return tracer.EmitMessage(ctx, "m") },
			func() (agl.Span, error) { return tracer.EmitReward(ctx, 1) },
		} {
			if _, err := emit(); err != nil {
				t.Fatal(err)
			}
		}
		// Somebody else, such as the proxy, takes the next one.
		next, err := store.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: "ro-1", AttemptID: "at-1", Count: 1})
		if err != nil {
			t.Fatal(err)
		}
		if next != 4 {
			t.Errorf("the sequence id after the reward: got %d, want 4", next)
		}
		if _, err := tracer.EmitMessage(ctx, "later"); err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, s := range end(t, trace) {
			got = append(got, s.SequenceID)
		}
		if want := []int64{1, 2, 3, 5, 6}; !slices.Equal(got, want) { // the last is the root
			t.Errorf("sequence ids: got %d, want %d", got, want)
		}
	})
}

// Only the first annotation waits for a store that hangs, and all are stored once it is back.
func TestAnnotationWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		store := &spanStore{
			reserve: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			},
			before: func(int, []agl.Span) error {
				if !back.Load() {
					return agl.ErrUnavailable
				}
				return nil
			},
		}
		ctx, trace := start(t, newTracer(t, tracer.Config{Store: store}))
		begin := time.Now()
		for range 100 {
			if _, err := tracer.EmitReward(ctx, 1); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(begin); waited > 5*time.Second {
			t.Errorf("100 rewards waited %v for a store that does not answer, want at most 5s together", waited)
		}
		back.Store(true)
		var got []int64
		for _, s := range end(t, trace) {
			got = append(got, s.SequenceID)
		}
		if len(got) != 101 || !slices.IsSorted(got) || got[0] != 1 || got[100] != 101 {
			t.Errorf("sequence ids of 100 rewards and the root: got %d", got)
		}
	})
}

// reserved returns the sequence id that somebody else, such as the proxy for a call,
// gets now.
func reserved(t *testing.T, store *spanStore) int64 {
	t.Helper()
	id, err := store.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: "ro-1", AttemptID: "at-1", Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// An annotation waits for its sequence id when its batch is on the way to the store
// already, too.
func TestAnnotationInABatchOnItsWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spanStore{before: func(int, []agl.Span) error {
			time.Sleep(time.Millisecond)
			return nil
		}}
		ctx, trace := start(t, newTracer(t, tracer.Config{Store: store, MaxBatchSpans: 1}))
		var calls []int64
		for range 200 {
			if _, err := tracer.EmitReward(ctx, 1); err != nil {
				t.Fatal(err)
			}
			calls = append(calls, reserved(t, store))
		}
		spans := end(t, trace)
		for i, call := range calls {
			if reward := spans[i].SequenceID; reward >= call {
				t.Errorf("reward %d has the sequence id %d, the call after it %d", i, reward, call)
			}
		}
	})
}

// The end of the agent's context neither costs an annotation its place nor counts as
// an outage of the store, and neither does a store under load, which takes seconds.
func TestAnnotationAfterTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var load atomic.Int64
		store := &spanStore{reserve: func(ctx context.Context) error {
			select {
			case <-time.After(time.Duration(load.Load())):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		ctx, trace := start(t, newTracer(t, tracer.Config{Store: store}))
		over, cancel := context.WithCancel(ctx)
		cancel()
		var calls []int64
		for _, in := range []context.Context{over, ctx} {
			load.Store(int64(4 * time.Second))
			if _, err := tracer.EmitReward(in, 1); err != nil {
				t.Fatal(err)
			}
			load.Store(0) // what is next comes at once
			calls = append(calls, reserved(t, store))
		}
		spans := end(t, trace)
		for i, call := range calls {
			if reward := spans[i].SequenceID; reward >= call {
				t.Errorf("reward %d has the sequence id %d, the call after it %d", i, reward, call)
			}
		}
	})
}

// A store whose client is instrumented does not record the queue's requests in the
// queue: when it is full, they would wait for each other.
func TestAnnotationOverAnInstrumentedStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spanStore{}
		tr := newTracer(t, tracer.Config{Store: store, MaxQueueSpans: 1})
		store.reserve = func(ctx context.Context) error {
			_, span := tr.TracerProvider().Tracer("http").Start(ctx, "POST /spans/next")
			span.End()
			return nil
		}
		ctx, trace := start(t, tr)
		for range 3 {
			if _, err := tracer.EmitReward(ctx, 1); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(end(t, trace)); got != 4 {
			t.Errorf("the trace has %d spans, want 3 rewards and the root", got)
		}
	})
}
