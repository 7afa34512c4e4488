package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// unsafeStore is a store for one goroutine: calls at the same time are mistakes, and so
// are calls that wait.
type unsafeStore struct {
	agl.Store

	t     *testing.T
	busy  atomic.Bool
	calls int // read and written without a lock, for the race detector
}

func (s *unsafeStore) enter() func() {
	if !s.busy.CompareAndSwap(false, true) {
		s.t.Error("two calls at the same time")
	}
	s.calls++
	return func() { s.busy.Store(false) }
}

func (s *unsafeStore) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	defer s.enter()()
	return s.Store.EnqueueRollouts(ctx, p)
}

func (s *unsafeStore) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	defer s.enter()()
	if p.Wait != 0 {
		s.t.Errorf("a dequeue waits %s", p.Wait)
	}
	return s.Store.DequeueRollouts(ctx, p)
}

func (s *unsafeStore) UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error) {
	defer s.enter()()
	return s.Store.UpdateAttempt(ctx, p)
}

func (s *unsafeStore) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error) {
	defer s.enter()()
	if p.Timeout != agl.Some(time.Duration(0)) {
		s.t.Errorf("a wait has the timeout %v", p.Timeout)
	}
	return s.Store.WaitForRollouts(ctx, p)
}

func (s *unsafeStore) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	defer s.enter()()
	return s.Store.GetRollout(ctx, p)
}

func (s *unsafeStore) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	defer s.enter()()
	return s.Store.QueryRollouts(ctx, p)
}

// Many runners and an algorithm use a store that is made for one goroutine.
func TestLocked(t *testing.T) {
	t.Parallel()
	inner := &unsafeStore{Store: memorytest.Open(t), t: t}
	s := store.Locked(inner)
	if s.Capabilities() != inner.Capabilities() {
		t.Error("other capabilities")
	}
	ctx := t.Context()
	const rollouts, workers = 200, 8
	var done sync.WaitGroup
	for range workers {
		done.Go(func() {
			for {
				got, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour})
				if err != nil || got.Closed {
					if err != nil {
						t.Error(err)
					}
					return
				}
				for _, r := range got.Rollouts {
					p := agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: new(agl.AttemptSucceeded)}
					if _, err := s.UpdateAttempt(ctx, p); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	var ids []string
	for range rollouts {
		queued, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte("{}")}}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, queued[0].RolloutID)
	}
	slices.Reverse(ids)
	want := slices.Concat(ids, ids[:1])
	finished, err := s.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: slices.Concat(want, []string{"unknown"})})
	if err != nil {
		t.Error(err)
	}
	var got []string
	for i := range finished {
		got = append(got, finished[i].RolloutID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("finished %v, want those that exist in the order of their ids, %v", got, want)
	}
	if page, err := s.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}}); err != nil || len(page.Items) != rollouts {
		t.Errorf("%d rollouts succeeded, %v", len(page.Items), err)
	}
	if err := s.CloseQueue(ctx); err != nil {
		t.Fatal(err)
	}
	done.Wait()
	for _, err := range s.Events(ctx, agl.EventsParams{}) {
		if !errors.Is(err, agl.ErrUnimplemented) {
			t.Errorf("events: %v", err)
		}
	}
}

// Waits end in time, with their context, and with what happens in the store behind.
func TestLockedWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := memorytest.Open(t)
		s := store.Locked(inner)
		began := time.Now()
		got, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, Wait: time.Minute})
		if err != nil || len(got.Rollouts) != 0 || time.Since(began) != time.Minute {
			t.Errorf("%d rollouts after %s, %v", len(got.Rollouts), time.Since(began), err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		time.AfterFunc(1050*time.Millisecond, func() { cancel(enough) }) // between two polls
		if _, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour}); !errors.Is(err, enough) {
			t.Errorf("a wait whose context ends: %v", err)
		}
		time.AfterFunc(time.Second, func() {
			if _, err := inner.EnqueueRollouts(context.Background(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte("{}")}}}); err != nil {
				t.Error(err)
			}
		})
		began = time.Now()
		if got, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour}); err != nil || len(got.Rollouts) != 1 || time.Since(began) > 2*time.Second {
			t.Errorf("%d rollouts after %s, %v", len(got.Rollouts), time.Since(began), err)
		}
	})
}
