package runner_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/tracer"
)

// recordingHook writes down what is called, and emits a reward at the end.
type recordingHook struct {
	t      *testing.T
	store  agl.Store
	name   string
	log    *[]string
	panics bool
}

func (h *recordingHook) note(what string) error {
	*h.log = append(*h.log, h.name+" "+what)
	if h.panics {
		panic("hook " + what)
	}
	return errors.New("a hook's error is only logged")
}

type hookKey struct{ name string }

func (h *recordingHook) OnRolloutStart(ctx context.Context, _ agl.Task) (context.Context, error) {
	if _, err := tracer.EmitMessage(ctx, "too early"); !errors.Is(err, agl.ErrIllegalState) {
		return nil, fmt.Errorf("OnRolloutStart is traced: %w", err)
	}
	return context.WithValue(ctx, hookKey{h.name + " rollout"}, "set up"), h.note("rollout start")
}

func (h *recordingHook) OnTraceStart(ctx context.Context, _ agl.Task) (context.Context, error) {
	if _, err := tracer.EmitMessage(ctx, h.name+" trace start"); err != nil {
		return nil, err
	}
	return context.WithValue(ctx, hookKey{h.name + " trace"}, "set up"), h.note("trace start")
}

func (h *recordingHook) OnTraceEnd(ctx context.Context, _ agl.Task, end agl.AttemptEnd) error {
	if _, err := tracer.EmitMessage(ctx, h.name+" trace end"); err != nil {
		return err
	}
	return h.note(fmt.Sprintf("trace end %s, %s", end.Outcome.Kind, end.Status))
}

func (h *recordingHook) OnRolloutEnd(ctx context.Context, _ agl.Task, end agl.AttemptEnd) error {
	if _, err := tracer.EmitReward(ctx, float64(len(end.Spans))); err != nil {
		return err
	}
	return h.note(fmt.Sprintf("rollout end %s %v", end.Outcome.Kind, spanNames(end.Spans)))
}

func (h *recordingHook) OnReported(ctx context.Context, task agl.Task, end agl.AttemptEnd) error {
	if ctx.Value(hookKey{h.name + " rollout"}) == nil && !h.panics {
		return h.note("has lost its context")
	}
	reported := get(h.t, h.store, task.Rollout.RolloutID).Attempt.Status
	return h.note(fmt.Sprintf("reported %s %d, the store has %s", end.Status, len(end.Spans), reported))
}

func TestHooks(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{false, true} {
		t.Run(fmt.Sprintf("panics=%t", panics), func(t *testing.T) {
			t.Parallel()
			s := openStore(t)
			id := enqueue(t, s, agl.RolloutConfig{})
			var log []string
			runOne(t, runner.Config{
				Store: s,
				Hooks: []agl.Hook{&recordingHook{t, s, "a", &log, panics}, &recordingHook{t, s, "b", &log, panics}},
				Agent: agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
					for _, of := range []string{"a rollout", "b rollout", "a trace", "b trace"} {
						if (ctx.Value(hookKey{of}) == nil) != panics {
							t.Errorf("what %s start has set up: %v", of, ctx.Value(hookKey{of}))
						}
					}
					log = append(log, "agent "+string(task.Input()))
					return agl.RewardResult(0.25), nil
				}),
			})
			spans := fmt.Sprintf("[%s %s %s %s %s %s]", agl.SpanMessage, agl.SpanMessage, agl.SpanMessage, agl.SpanMessage, agl.SpanAnnotation, id)
			want := []string{
				"a rollout start", "b rollout start", "a trace start", "b trace start", `agent {"question":"why?"}`,
				"a trace end ok, succeeded", "b trace end ok, succeeded", "a rollout end ok " + spans, "b rollout end ok " + spans,
				"a reported succeeded 8, the store has succeeded", "b reported succeeded 8, the store has succeeded",
			}
			if !slices.Equal(log, want) {
				t.Errorf("order\n got %s\nwant %s", strings.Join(log, "; "), strings.Join(want, "; "))
			}
			checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
			stored := spansOf(t, s, id)
			if len(stored) != 8 {
				t.Fatalf("stored %v", spanNames(stored))
			}
			root := stored[5]
			for _, span := range stored {
				// What hooks emit at the end belongs to the attempt's trace, too.
				if span.TraceID != root.TraceID || (span.ParentID.V != root.SpanID) != (span.SpanID == root.SpanID) {
					t.Errorf("%s is span %s below %q in trace %s, want it below %s in %s", span.Name, span.SpanID, span.ParentID.V, span.TraceID, root.SpanID, root.TraceID)
				}
			}
			if reward, _ := stored[7].Attributes.GetFloat("agentlightning.reward.0.value"); reward != 6 {
				t.Errorf("the reward of OnRolloutEnd is %v in %v", reward, spanNames(stored))
			}
		})
	}
}

// Hooks run to their end although the agent's context has ended.
func TestHooksAfterTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		id := enqueue(t, s, agl.RolloutConfig{TimeoutSeconds: seconds(1)})
		var log []string
		runOne(t, runner.Config{Store: s, HeartbeatInterval: -1, Agent: agl.AgentFunc(untilDone), Hooks: []agl.Hook{&recordingHook{t, s, "a", &log, false}}})
		if len(log) != 5 || log[2] != "a trace end timeout, timeout" || !strings.HasPrefix(log[3], "a rollout end timeout") || log[4] != "a reported timeout 4, the store has timeout" {
			t.Errorf("hooks called: %v", log)
		}
		checkEnd(t, s, id, agl.RolloutFailed, agl.AttemptTimeout, agl.OutcomeTimeout)
	})
}

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

// shiftedStore is a store whose clock is ahead of its runners'.
type shiftedStore struct {
	*faultyStore

	ahead time.Duration
}

func (s *shiftedStore) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	res, err := s.faultyStore.DequeueRollouts(ctx, p)
	for i := range res.Rollouts {
		attempt := *res.Rollouts[i].Attempt
		attempt.StartTime = attempt.StartTime.Add(s.ahead)
		res.Rollouts[i].Attempt = &attempt
	}
	return res, err
}

// An attempt that ended while it was prepared does not start its agent.
func TestAttemptThatEndsWhileItIsPrepared(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		timeout agl.Null[float64]
		ahead   time.Duration                                     // the store's clock
		during  func(t *testing.T, s agl.Store, rolloutID string) // while the hook sets things up
		status  agl.RolloutStatus
		attempt agl.AttemptStatus
		kind    agl.OutcomeKind
	}{
		"out of time":                   {seconds(60), 0, func(*testing.T, agl.Store, string) {}, agl.RolloutFailed, agl.AttemptTimeout, agl.OutcomeTimeout},
		"out of time, by another clock": {seconds(60), time.Hour, func(*testing.T, agl.Store, string) {}, agl.RolloutFailed, agl.AttemptTimeout, agl.OutcomeTimeout},
		"cancelled": {seconds(3600), -2 * time.Hour, func(t *testing.T, s agl.Store, rolloutID string) {
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
					Store: &shiftedStore{s, tt.ahead},
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
