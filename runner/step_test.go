package runner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner"
)

// retryTwice is the config of a rollout that may fail twice.
func retryTwice() *agl.RolloutConfig {
	return &agl.RolloutConfig{MaxAttempts: 3, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed, agl.AttemptTimeout}, TimeoutSeconds: seconds(60)}
}

// Step makes the attempts that the retry condition wants.
func TestStepRetries(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		succeeds int // the attempt that does; 0 is none
		attempts int
		status   agl.RolloutStatus
		kind     agl.OutcomeKind
	}{
		"at last": {3, 3, agl.RolloutSucceeded, agl.OutcomeOK},
		"never":   {0, 3, agl.RolloutFailed, agl.OutcomeTimeout},
		"at once": {1, 1, agl.RolloutSucceeded, agl.OutcomeOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				attempts := 0
				r := newRunner(t, runner.Config{Store: s, Agent: agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
					if attempts++; attempts != task.Attempt.SequenceID {
						t.Errorf("attempt %d has the number %d", attempts, task.Attempt.SequenceID)
					}
					switch attempts {
					case tt.succeeds:
						return agl.RewardResult(1), nil
					case 3:
						return untilDone(ctx, task)
					}
					return agl.Result{}, errors.New("no idea")
				})})
				rollout, err := r.Step(t.Context(), runner.StepParams{EnqueueRollout: agl.EnqueueRollout{Config: retryTwice()}, Resources: someResources})
				if got := agl.OutcomeOf(err).Kind; got != tt.kind || rollout.Status != tt.status || attempts != tt.attempts {
					t.Errorf("%d attempts, rollout is %s, %v; want %d, %s, %s", attempts, rollout.Status, err, tt.attempts, tt.status, tt.kind)
				}
			})
		})
	}
}

// A Step that ends before the retries says who will make them.
func TestStepLeavesARetry(t *testing.T) {
	t.Parallel()
	fails := agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) { return agl.Result{}, errors.New("no idea") })
	t.Run("in the queue", func(t *testing.T) {
		t.Parallel()
		s := openStore(t)
		ctx, cancel := context.WithCancel(t.Context())
		r := newRunner(t, runner.Config{Store: s, Agent: agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
			cancel()
			return untilDone(ctx, task)
		})})
		rollout, err := r.Step(ctx, runner.StepParams{EnqueueRollout: agl.EnqueueRollout{Config: retryTwice()}, Resources: someResources})
		if rollout.Status != agl.RolloutRequeuing || err == nil || !strings.Contains(err.Error(), "is queued for another attempt, which only a runner that takes rollouts will make") {
			t.Errorf("rollout is %s, %v", rollout.Status, err)
		}
	})
	t.Run("to another runner", func(t *testing.T) {
		t.Parallel()
		s := openStore(t)
		s.updateAttempt = nil
		taking := &takingStore{faultyStore: s}
		r := newRunner(t, runner.Config{Store: taking, Agent: fails})
		rollout, err := r.Step(t.Context(), runner.StepParams{EnqueueRollout: agl.EnqueueRollout{Config: retryTwice()}, Resources: someResources})
		if rollout.Status != agl.RolloutPreparing || err == nil || !strings.Contains(err.Error(), "another runner has taken its next attempt") {
			t.Errorf("rollout is %s, %v", rollout.Status, err)
		}
	})
}

// takingStore has a rival that takes what is queued as soon as it is.
type takingStore struct{ *faultyStore }

func (s *takingStore) UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error) {
	attempt, err := s.faultyStore.UpdateAttempt(ctx, p)
	if err == nil {
		_, err = s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some("rival")})
	}
	return attempt, err
}

// StepAttempt runs an attempt that somebody else has started, with heartbeats.
func TestStepAttempt(t *testing.T) {
	t.Parallel()
	for name, worker := range map[string]agl.Null[string]{"of a worker": agl.Some("elsewhere"), "of nobody": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				addResources(t, s, someResources)
				// Without heartbeats the attempt would be unresponsive after 20 s.
				started, err := s.StartRollout(t.Context(), agl.StartRolloutParams{
					EnqueueRollout: agl.EnqueueRollout{Config: &agl.RolloutConfig{UnresponsiveSeconds: seconds(20)}}, WorkerID: worker,
				})
				if err != nil {
					t.Fatal(err)
				}
				r := newRunner(t, runner.Config{Store: s, Agent: agl.AgentFunc(func(_ context.Context, task agl.Task) (agl.Result, error) {
					time.Sleep(time.Minute)
					if got := get(t, s, started.RolloutID).Attempt.WorkerID.V; got == "" || worker.Valid && got != worker.V || got != task.Attempt.WorkerID.V {
						t.Errorf("the attempt is of worker %q, the agent's of %q, want %q", got, task.Attempt.WorkerID.V, worker.V)
					}
					return agl.RewardResult(1), nil
				})})
				rollout, err := r.StepAttempt(t.Context(), started)
				if err != nil || rollout.Status != agl.RolloutSucceeded || rollout.Attempt.AttemptID != started.Attempt.AttemptID {
					t.Errorf("rollout is %s, %v", rollout.Status, err)
				}
				checkEnd(t, s, started.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
				if _, err := r.StepAttempt(t.Context(), rollout); !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), "is succeeded, must be preparing or running") {
					t.Errorf("again: %v", err)
				}
				if _, err := r.StepAttempt(t.Context(), agl.AttemptedRollout{}); !errors.Is(err, agl.ErrInvalid) {
					t.Errorf("without an attempt: %v", err)
				}
			})
		})
	}
}

func TestStep(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	failure := errors.New("no idea")
	r := newRunner(t, runner.Config{Store: s, WorkerPrefix: "w", Agent: agl.AgentFunc(func(_ context.Context, task agl.Task) (agl.Result, error) {
		if task.Rollout.Mode == agl.ModeVal {
			return agl.Result{}, failure
		}
		template, err := task.Resources.PromptTemplate()
		if err != nil || template.Template != "{question}" {
			return agl.Result{}, fmt.Errorf("template %q: %w", template.Template, err)
		}
		return agl.RewardResult(1), nil
	})})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			rollout, err := r.Step(t.Context(), runner.StepParams{
				EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(`1`), Mode: agl.ModeTrain}, Resources: someResources,
			})
			if err != nil || rollout.Status != agl.RolloutSucceeded {
				t.Errorf("rollout is %s, %v", rollout.Status, err)
			}
		})
	}
	wg.Wait()
	// What a step brings is for that step alone.
	if latest, err := s.GetLatestResources(t.Context()); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("the latest resources are %v, %v", latest, err)
	}
	rollout, err := r.Step(t.Context(), runner.StepParams{EnqueueRollout: agl.EnqueueRollout{Mode: agl.ModeVal}, Resources: someResources})
	var outcome *agl.OutcomeError
	if !errors.As(err, &outcome) || outcome.Kind != agl.OutcomeAgentError || !strings.Contains(err.Error(), "no idea") {
		t.Errorf("error is %v", err)
	}
	if rollout.Status != agl.RolloutFailed {
		t.Errorf("rollout is %s", rollout.Status)
	}
	page, err := s.QueryWorkers(t.Context(), agl.QueryWorkersParams{})
	if err != nil || len(page.Items) > 4 {
		t.Errorf("five steps left %d workers, %v", len(page.Items), err)
	}
	for _, w := range page.Items {
		if w.Status != agl.WorkerIdle {
			t.Errorf("worker %s is %s", w.WorkerID, w.Status)
		}
	}
}
