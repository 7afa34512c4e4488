package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/storetest"
)

// TestLeaveWhileServed ends the wait of a dequeue while a batch that serves it is being committed: the rollout must not
// be lost, even if the batch after that fails.
func TestLeaveWhileServed(t *testing.T) {
	t.Parallel()
	type setup struct {
		*store.Store
		driver *gate
		cancel context.CancelFunc
	}
	for name, test := range map[string]struct {
		leave func(s *setup)
		lost  bool // the caller is gone, so the claim is returned
	}{
		"the store closes": {leave: func(s *setup) { go func() { _ = s.Close(context.Background()) }() }},
		"timeout": {leave: func(s *setup) {
			time.Sleep(2 * time.Minute)
			s.driver.away.Store(1)
		}},
		"context": {leave: func(s *setup) {
			s.cancel()
			s.driver.away.Store(1)
		}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &gate{Driver: newMemory(t, storetest.OpenParams{}), release: make(chan struct{})}
				ctx, cancel := context.WithCancel(t.Context())
				s := &setup{reopen(t, d), d, cancel}
				defer func() {
					if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
						t.Error(err)
					}
				}()
				waiting := block(ctx, s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Minute})
				d.hold.Store(true)
				enqueued := make(chan error, 1)
				go func() {
					_, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 1)})
					enqueued <- err
				}()
				synctest.Wait()
				test.leave(s)
				synctest.Wait()
				close(d.release)
				if err := <-enqueued; err != nil {
					t.Fatal(err)
				}
				got := <-waiting
				if test.lost {
					if got.err == nil {
						t.Errorf("got %+v, want the error of the context", got)
					}
					found, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1})
					if got.result = found; err != nil {
						t.Error(err)
					}
				} else if got.err != nil {
					t.Error(got.err)
				}
				if len(got.result.Rollouts) != 1 || got.result.Rollouts[0].Attempt.SequenceID != 1 {
					t.Errorf("got %+v, want the first attempt of the rollout", got.result)
				}
			})
		})
	}
}

// TestLeaveKeepsTheClaimsOfARetry: the caller's connection to one server is lost, it asks another server with the same key
// and gets a claim, and only then does the first server learn that the caller is gone.
func TestLeaveKeepsTheClaimsOfARetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newMemory(t, storetest.OpenParams{})
		first, second := reopen(t, d), reopen(t, d)
		defer func() {
			for _, s := range []*store.Store{first, second} {
				if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}
		}()
		ctx, cancel := context.WithCancel(t.Context())
		p := agl.DequeueRolloutsParams{Limit: 1, Wait: time.Minute, IdempotencyKey: "k"}
		lost := block(ctx, first, p)
		r := enqueue(t, second, 1, agl.RolloutConfig{})[0]
		retry := arrived(t, "the retry", block(t.Context(), second, p))
		cancel()
		if got := <-lost; got.err == nil {
			t.Errorf("got %+v, want the error of the context", got)
		}
		now, err := second.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: r.RolloutID})
		if err != nil || now.Status != agl.RolloutPreparing || now.Attempt.AttemptID != retry.result.Rollouts[0].Attempt.AttemptID {
			t.Errorf("the claim is %+v, %v, want it as the retry got it", now, err)
		}
	})
}

// TestLeaveReturnsADoubtfulClaim: the commit that served a dequeue was reported to have failed.
func TestLeaveReturnsADoubtfulClaim(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"with a key": "k", "without a key": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &gate{}
				s := openGate(t, g)
				ctx, cancel := context.WithCancel(t.Context())
				waiting := block(ctx, s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour, IdempotencyKey: key})
				g.lose.Store(1)
				_, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 1)})
				if !errors.Is(err, agl.ErrUnavailable) {
					t.Fatalf("enqueued with %v, want a commit in doubt", err)
				}
				synctest.Wait() // the queue is offered again, and has nothing
				cancel()
				got := <-waiting
				if got.err != nil { // else its key has found the claim before the end of its context
					got.result, got.err = s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1})
				}
				if got.err != nil || len(got.result.Rollouts) != 1 {
					t.Errorf("got %+v, want the rollout", got)
				}
			})
		})
	}
}

// TestReturnedClaimSurvivesAFailure: the batch that would give a returned claim to a blocked dequeue fails, and no other
// write follows.
func TestReturnedClaimSurvivesAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &gate{Driver: newMemory(t, storetest.OpenParams{}), release: make(chan struct{})}
		s := reopen(t, d)
		defer func() {
			if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}()
		enqueue(t, s, 1, agl.RolloutConfig{})
		r := arrived(t, "the first claim", block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1})).result.Rollouts[0]
		waiting := block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour})
		d.hold.Store(true)
		returned := make(chan error, 1)
		go func() { returned <- s.ReturnClaims(t.Context(), agl.ReturnClaimsParams{Claims: agl.ClaimsOf(r)}) }()
		synctest.Wait()
		d.away.Store(1)
		close(d.release)
		if err := <-returned; err != nil {
			t.Fatal(err)
		}
		if got := <-waiting; got.err != nil || len(got.result.Rollouts) != 1 || got.took > time.Minute {
			t.Errorf("got %+v, want the returned rollout soon", got)
		}
	})
}
