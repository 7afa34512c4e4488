package execution

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/agl-go/agl"
)

// A process of runners that is told to end may finish what it has, and waits for nothing else.
func TestRunnersDrain(t *testing.T) {
	t.Parallel()
	url := make(chan string, 1)
	leader := ClientServer{Listening: func(u string) { url <- u }}
	freePort(&leader)
	leader.Role, leader.Token = RoleAlgorithm, "secret"
	ended := make(chan error, 1)
	go func() {
		ended <- leader.Execute(t.Context(), Parts{OpenStore: openMemory, Algorithm: func(ctx context.Context, s agl.Store) error {
			rollouts, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 1)})
			if err != nil {
				return err
			}
			done, err := s.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{rollouts[0].RolloutID}})
			if err == nil && done[0].Status != agl.RolloutSucceeded {
				err = errors.New("the rollout is " + string(done[0].Status))
			}
			return err
		}})
	}()
	ctx, stop := context.WithCancel(t.Context())
	follower := ClientServer{Config: Config{Role: RoleRunner, StoreURL: <-url, Token: "secret"}}
	runner := func(ctx context.Context, s agl.Store, _ int) error {
		next := agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour, WorkerID: agl.Some("w")}
		got, err := s.DequeueRollouts(ctx, next)
		if err != nil || len(got.Rollouts) != 1 {
			return errors.Join(errors.New("no rollout"), err)
		}
		stop()
		if rest, err := s.DequeueRollouts(ctx, next); err != nil || !rest.Closed {
			t.Errorf("after the end was announced: %+v, %v, want a closed queue", rest, err)
		}
		status := agl.AttemptSucceeded
		attempt := got.Rollouts[0].Attempt
		_, err = s.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: attempt.RolloutID, AttemptID: attempt.AttemptID, Status: &status})
		return err
	}
	if err := follower.Execute(ctx, Parts{Runner: runner}); !errors.Is(err, context.Canceled) {
		t.Errorf("the runners: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the algorithm: %v", err)
	}
}

// lateClaims has a claim that arrives as the drain begins.
type lateClaims struct {
	agl.UnimplementedStore

	draining chan struct{}
	refusal  error
	returned []agl.Claim
}

func (*lateClaims) Capabilities() agl.Capabilities { return agl.Capabilities{ReturnClaims: true} }

func (s *lateClaims) DequeueRollouts(context.Context, agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	close(s.draining)
	return agl.DequeueResult{Rollouts: []agl.AttemptedRollout{{Attempt: &agl.Attempt{RolloutID: "ro", AttemptID: "at"}}}}, nil
}

func (s *lateClaims) ReturnClaims(_ context.Context, p agl.ReturnClaimsParams) error {
	s.returned = p.Claims
	return s.refusal
}

func TestLateClaims(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{"taken back": nil, "not taken back": errors.New("no returns today")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			late := &lateClaims{draining: make(chan struct{}), refusal: refusal}
			got, err := (&drainedStore{late, late.draining}).DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1})
			if err != nil || got.Closed != (refusal == nil) || (len(got.Rollouts) == 0) != (refusal == nil) {
				t.Errorf("got %+v, %v", got, err)
			}
			if len(late.returned) != 1 || late.returned[0] != (agl.Claim{RolloutID: "ro", AttemptID: "at"}) {
				t.Errorf("returned %v", late.returned)
			}
		})
	}
}
