package runner_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/tracer"
)

// startHook is a function that runs when the rollout starts.
type startHook struct {
	agl.UnimplementedHook
	start    func(ctx context.Context) (context.Context, error)
	reported func(end agl.AttemptEnd)
}

func (h *startHook) OnRolloutStart(ctx context.Context, _ agl.Task) (context.Context, error) {
	return h.start(ctx)
}

func (h *startHook) OnReported(_ context.Context, _ agl.Task, end agl.AttemptEnd) error {
	if h.reported != nil {
		h.reported(end)
	}
	return nil
}

// An attempt that ended while it was prepared does not start its agent.
func TestAttemptThatEndsWhileItIsPrepared(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		timeout agl.Null[float64]
		during  func(t *testing.T, s agl.Store, rolloutID string) // while the hook sets things up
		status  agl.RolloutStatus
		attempt agl.AttemptStatus
		kind    agl.OutcomeKind
	}{
		"out of time": {seconds(60), func(*testing.T, agl.Store, string) {}, agl.RolloutFailed, agl.AttemptTimeout, agl.OutcomeTimeout},
		"cancelled": {seconds(3600), func(t *testing.T, s agl.Store, rolloutID string) {
			if _, err := s.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: rolloutID}); err != nil {
				t.Error(err)
			}
		}, agl.RolloutCancelled, agl.AttemptFailed, agl.OutcomeCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				id := enqueue(t, s, agl.RolloutConfig{TimeoutSeconds: tt.timeout})
				s.updateAttempt = func(p agl.UpdateAttemptParams) error {
					if *p.Status == agl.AttemptRunning {
						t.Error("the attempt is reported as running")
					}
					return nil
				}
				var end agl.AttemptEnd
				runOne(t, runner.Config{
					Store: s,
					Hooks: []agl.Hook{&startHook{
						start: func(context.Context) (context.Context, error) {
							tt.during(t, s, id)
							time.Sleep(2 * time.Minute)
							return nil, nil //nolint:nilnil // nothing to add
						},
						reported: func(e agl.AttemptEnd) { end = e },
					}},
					Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
						t.Error("the agent was started")
						return agl.Result{}, nil
					}),
				})
				checkEnd(t, s, id, tt.status, tt.attempt, tt.kind)
				if end.Outcome.Kind != tt.kind || end.Status != tt.attempt {
					t.Errorf("OnReported is told %+v, want %s", end, tt.kind)
				}
			})
		})
	}
}

// The context of a hook reaches the agent, also its end; one that has lost the attempt does not.
func TestContextOfAHook(t *testing.T) {
	t.Parallel()
	type key struct{}
	t.Run("ends", func(t *testing.T) {
		t.Parallel()
		s := openStore(t)
		id := enqueue(t, s, agl.RolloutConfig{})
		broken := errors.New("the sandbox has crashed")
		runOne(t, runner.Config{
			Store: s, Agent: agl.AgentFunc(untilDone),
			Hooks: []agl.Hook{&startHook{start: func(ctx context.Context) (context.Context, error) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(time.Millisecond, func() { cancel(broken) })
				return ctx, nil
			}}},
		})
		if outcome := checkEnd(t, s, id, agl.RolloutFailed, agl.AttemptFailed, agl.OutcomeCancelled); !strings.Contains(outcome.Message, broken.Error()) {
			t.Errorf("message is %q, want %q", outcome.Message, broken)
		}
	})
	t.Run("not derived", func(t *testing.T) {
		t.Parallel()
		s := openStore(t)
		id := enqueue(t, s, agl.RolloutConfig{})
		var log strings.Builder
		runOne(t, runner.Config{
			Store: s, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Hooks: []agl.Hook{&startHook{start: func(context.Context) (context.Context, error) {
				return context.WithValue(t.Context(), key{}, "lost"), nil
			}}},
			Agent: agl.AgentFunc(func(ctx context.Context, _ agl.Task) (agl.Result, error) {
				if ctx.Value(key{}) != nil {
					return agl.Result{}, errors.New("the agent has a context that is not derived")
				}
				_, err := tracer.EmitReward(ctx, 1)
				return agl.Result{}, err
			}),
		})
		checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
		if !strings.Contains(log.String(), "a context that is not derived from its own") {
			t.Errorf("the log says nothing of it: %s", log.String())
		}
	})
}

// The store hears that the agent runs, although it records nothing.
func TestRunningIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		id := enqueue(t, s, agl.RolloutConfig{})
		runOne(t, runner.Config{Store: s, HeartbeatInterval: -1, Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
			time.Sleep(time.Second)
			if r := get(t, s, id); r.Status != agl.RolloutRunning || r.Attempt.Status != agl.AttemptRunning {
				t.Errorf("rollout is %s and its attempt %s while the agent runs", r.Status, r.Attempt.Status)
			}
			return agl.Result{}, nil
		})})
		checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
	})
}

// The type of a panic's exception is that of the value.
func TestTypeOfAPanic(t *testing.T) {
	t.Parallel()
	for want, agent := range map[string]agl.AgentFunc{
		"string":              func(context.Context, agl.Task) (agl.Result, error) { panic("at the disco") },
		"*errors.errorString": func(context.Context, agl.Task) (agl.Result, error) { panic(errors.New("x")) },
		"runtime.boundsError": func(_ context.Context, task agl.Task) (agl.Result, error) {
			return agl.Result{}, errors.New(string(task.Input()[1000:]))
		},
	} {
		s := openStore(t)
		id := enqueue(t, s, agl.RolloutConfig{})
		runOne(t, runner.Config{Store: s, Agent: agent})
		checkEnd(t, s, id, agl.RolloutFailed, agl.AttemptFailed, agl.OutcomePanic)
		spans := spansOf(t, s, id)
		if got, _ := spans[0].Attributes.GetString(agl.AttrExceptionType); got != want {
			t.Errorf("exception.type: got %q, want %q", got, want)
		}
	}
}
