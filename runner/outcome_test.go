package runner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/tracer"
)

// downModel is a model that is away.
type downModel struct{}

func (downModel) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("connection refused")
}

func callModel(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://model.invalid/v1/chat/completions", strings.NewReader(`{}`))
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &tracer.Transport{Base: downModel{}}}).Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	result := func(r agl.Result) agl.AgentFunc {
		return func(context.Context, agl.Task) (agl.Result, error) { return r, nil }
	}
	fails := func(err error) agl.AgentFunc {
		return func(context.Context, agl.Task) (agl.Result, error) { return agl.Result{}, err }
	}
	now := agl.Some(agl.Timestamp(1))
	for _, tc := range []struct {
		name    string
		agent   agl.AgentFunc
		kind    agl.OutcomeKind
		message string
		spans   []string // the last is the trace's root
	}{
		{"nothing", result(agl.Result{}), agl.OutcomeOK, "", nil},
		{"scalar reward", result(agl.RewardResult(0.5)), agl.OutcomeOK, "", []string{agl.SpanAnnotation}},
		{"rewards", result(agl.Result{Rewards: []agl.Reward{{Name: "a", Value: 1}, {Name: "b"}}}), agl.OutcomeOK, "", []string{agl.SpanAnnotation}},
		{"spans", result(agl.Result{Spans: []agl.Span{{Name: "x", StartTime: now}, {Name: "y"}}}), agl.OutcomeOK, "", []string{"x", "y"}},
		{"drafts", result(agl.Result{Drafts: []agl.SpanDraft{{Name: "x"}, {Name: "y"}}}), agl.OutcomeOK, "", []string{"x", "y"}},
		{"emitted", func(ctx context.Context, _ agl.Task) (agl.Result, error) {
			_, err := tracer.EmitReward(ctx, 1)
			return agl.Result{}, err
		}, agl.OutcomeOK, "", []string{agl.SpanAnnotation}},
		{"all at once", result(agl.Result{Rewards: []agl.Reward{{}}, Spans: []agl.Span{{Name: "x"}}, Drafts: []agl.SpanDraft{{Name: "y"}}}), agl.OutcomeOK, "", []string{"x", "y", agl.SpanAnnotation}},
		{"NaN reward", result(agl.RewardResult(math.NaN())), agl.OutcomeAgentError, "got NaN, must be a finite number", nil},
		{"span of another attempt", result(agl.Result{Spans: []agl.Span{{Name: "x", AttemptID: "at-0"}}}), agl.OutcomeAgentError, `attempt_id: got "at-0"`, nil},
		{"draft without a name", result(agl.Result{Drafts: []agl.SpanDraft{{}}}), agl.OutcomeAgentError, "name: empty", nil},
		{"error", fails(errors.New("lost my way")), agl.OutcomeAgentError, "lost my way", nil},
		{"typed error", fails(fmt.Errorf("turn 3: %w", &agl.OutcomeError{Kind: agl.OutcomeContextOverflow, Err: errors.New("too long")})), agl.OutcomeContextOverflow, "turn 3: too long", nil},
		{"error with a kind that is none", fails(&agl.OutcomeError{Kind: agl.OutcomeOK, Err: errors.New("odd")}), agl.OutcomeAgentError, "odd", nil},
		{"model away", func(ctx context.Context, _ agl.Task) (agl.Result, error) {
			return agl.Result{}, fmt.Errorf("agent: %v", callModel(ctx)) //nolint:errorlint // an SDK that hides its cause
		}, agl.OutcomeModelError, "connection refused", []string{agl.SpanChatCompletion}},
		{"model away and never mind", func(ctx context.Context, _ agl.Task) (agl.Result, error) {
			_ = callModel(ctx)
			return agl.RewardResult(0), nil
		}, agl.OutcomeOK, "", []string{agl.SpanChatCompletion, agl.SpanAnnotation}},
		{"panic", func(context.Context, agl.Task) (agl.Result, error) { panic("at the disco") }, agl.OutcomePanic, "panic: at the disco", []string{agl.SpanException}},
		{"Goexit", func(context.Context, agl.Task) (agl.Result, error) { runtime.Goexit(); return agl.Result{}, nil }, agl.OutcomeAgentError, "ended its goroutine", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t)
			id := enqueue(t, s, agl.RolloutConfig{})
			runOne(t, runner.Config{Store: s, Agent: tc.agent})
			rolloutStatus, attemptStatus := agl.RolloutFailed, agl.AttemptFailed
			if tc.kind == agl.OutcomeOK {
				rolloutStatus, attemptStatus = agl.RolloutSucceeded, agl.AttemptSucceeded
			}
			outcome := checkEnd(t, s, id, rolloutStatus, attemptStatus, tc.kind)
			if !strings.Contains(outcome.Message, tc.message) || tc.message == "" && outcome.Message != "" {
				t.Errorf("message is %q, want %q", outcome.Message, tc.message)
			}
			want := tc.spans
			if want != nil {
				want = append(want, id)
			}
			if got := spanNames(spansOf(t, s, id)); !slices.Equal(got, want) {
				t.Errorf("spans are %v, want %v", got, want)
			}
		})
	}
}

func TestPanicKeepsItsStack(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	id := enqueue(t, s, agl.RolloutConfig{})
	runOne(t, runner.Config{Store: s, Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
		return explode()
	})})
	stack, _ := spansOf(t, s, id)[0].Attributes.GetString(agl.AttrExceptionStacktrace)
	if !strings.Contains(stack, "runner_test.explode") {
		t.Errorf("the stack does not name the function that panicked:\n%s", stack)
	}
}

func explode() (agl.Result, error) { panic(errors.New("boom")) }

func TestMissingResources(t *testing.T) {
	t.Parallel()
	t.Run("none at all", func(t *testing.T) {
		t.Parallel()
		s := openStore(t)
		rollouts, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 1)})
		if err != nil {
			t.Fatal(err)
		}
		runOne(t, runner.Config{Store: s, Agent: agl.AgentFunc(untilDone)})
		outcome := checkEnd(t, s, rollouts[0].RolloutID, agl.RolloutFailed, agl.AttemptFailed, agl.OutcomeSetupError)
		if !strings.Contains(outcome.Message, "add some with POST /v1/agl/resources ({} for an agent that uses none)") {
			t.Errorf("message is %q", outcome.Message)
		}
	})
	t.Run("unknown id", func(t *testing.T) {
		t.Parallel()
		s := openStore(t)
		rollouts, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{ResourcesID: agl.Some("rs-0")}}})
		if err != nil {
			t.Fatal(err)
		}
		runOne(t, runner.Config{Store: s, Agent: agl.AgentFunc(untilDone)})
		outcome := checkEnd(t, s, rollouts[0].RolloutID, agl.RolloutFailed, agl.AttemptFailed, agl.OutcomeSetupError)
		if !strings.Contains(outcome.Message, `resources "rs-0", which the store does not have`) {
			t.Errorf("message is %q", outcome.Message)
		}
	})
	t.Run("away for a moment", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			addResources(t, s, someResources)
			calls := 0
			s.getResources = func() error {
				if calls++; calls < 4 {
					return agl.Errorf(agl.CodeUnavailable, "away")
				}
				return nil
			}
			rollout, err := s.StartRollout(t.Context(), agl.StartRolloutParams{})
			if err != nil || rollout.ResourcesID.V == "" {
				t.Fatalf("%v, %v", rollout.ResourcesID, err)
			}
			status, none := agl.RolloutQueuing, agl.Null[string]{}
			if _, err := s.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: rollout.RolloutID, Status: &status, ResourcesID: &none}); err != nil {
				t.Fatal(err)
			}
			runOne(t, runner.Config{Store: s, Agent: agl.AgentFunc(func(_ context.Context, task agl.Task) (agl.Result, error) {
				_, err := task.Resources.PromptTemplate()
				return agl.Result{}, err
			})})
			checkEnd(t, s, rollout.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
		})
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	t.Run("the agent obeys", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			id := enqueue(t, s, agl.RolloutConfig{TimeoutSeconds: seconds(60), MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout}})
			began, attempts := time.Now(), 0
			r := newRunner(t, runner.Config{Store: s, MaxRollouts: 2, HeartbeatInterval: -1, Agent: agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
				attempts++
				if attempts == 1 {
					return untilDone(ctx, task)
				}
				return agl.Result{}, nil
			})})
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != time.Minute {
				t.Errorf("the two attempts took %s, want a minute and nothing", took)
			}
			checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
			page, err := s.QueryAttempts(t.Context(), agl.QueryAttemptsParams{RolloutID: id})
			if err != nil || len(page.Items) != 2 {
				t.Fatalf("%d attempts, %v", len(page.Items), err)
			}
			if first, _ := page.Items[0].Outcome(); page.Items[0].Status != agl.AttemptTimeout || first.Kind != agl.OutcomeTimeout {
				t.Errorf("the first attempt is %s, %+v", page.Items[0].Status, first)
			}
		})
	})
	t.Run("the agent never answers", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t)
			stuck := enqueue(t, s, agl.RolloutConfig{TimeoutSeconds: seconds(60)})
			next := enqueue(t, s, agl.RolloutConfig{})
			release := make(chan struct{})
			var calls atomic.Int64
			r := newRunner(t, runner.Config{Store: s, MaxRollouts: 2, Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
				if calls.Add(1) == 1 {
					<-release
				}
				return agl.Result{}, nil
			})})
			began := time.Now()
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != time.Minute+grace {
				t.Errorf("Run took %s", took)
			}
			checkEnd(t, s, stuck, agl.RolloutFailed, agl.AttemptTimeout, agl.OutcomeTimeout)
			checkEnd(t, s, next, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
			if r.Abandoned() != 1 {
				t.Errorf("%d agents are left behind, want 1", r.Abandoned())
			}
			close(release)
			synctest.Wait()
			if r.Abandoned() != 0 {
				t.Errorf("%d agents are left behind after it returned", r.Abandoned())
			}
		})
	})
}

// A cancelled rollout stops its agent, and the runner does not overrule the
// store.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		interval time.Duration
		agent    agl.AgentFunc
		within   time.Duration
	}{
		{"told by a heartbeat", time.Second, untilDone, time.Second},
		{"told by a span", -1, func(ctx context.Context, task agl.Task) (agl.Result, error) {
			for ctx.Err() == nil {
				if _, err := tracer.EmitMessage(ctx, "still here"); err != nil {
					return agl.Result{}, err
				}
				select {
				case <-time.After(500 * time.Millisecond):
				case <-ctx.Done():
				}
			}
			return untilDone(ctx, task)
		}, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				s.updateAttempt = func(p agl.UpdateAttemptParams) error {
					if *p.Status != agl.AttemptRunning {
						t.Errorf("the runner reports %s", *p.Status)
					}
					return nil
				}
				id := enqueue(t, s, agl.RolloutConfig{})
				returned := make(chan struct{})
				r := newRunner(t, runner.Config{Store: s, HeartbeatInterval: tc.interval, MaxRollouts: 1,
					Agent: agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
						defer close(returned)
						return tc.agent(ctx, task)
					})})
				_, wait := inBackground(t, r)
				time.Sleep(10*time.Second + time.Millisecond)
				if _, err := s.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: id}); err != nil {
					t.Fatal(err)
				}
				cancelled := time.Now()
				<-returned
				if took := time.Since(cancelled); took > tc.within {
					t.Errorf("the agent's context ended %s after the cancellation", took)
				}
				wait()
				checkEnd(t, s, id, agl.RolloutCancelled, agl.AttemptFailed, agl.OutcomeCancelled)
			})
		})
	}
}

func TestLostSpansMaskTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		s.addSpans = func(agl.AddSpansParams) error { return agl.Errorf(agl.CodeExhausted, "no room") }
		id := enqueue(t, s, agl.RolloutConfig{})
		runOne(t, runner.Config{Store: s, Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
			return agl.RewardResult(1), nil
		})})
		outcome := checkEnd(t, s, id, agl.RolloutFailed, agl.AttemptFailed, agl.OutcomeSetupError)
		if !strings.Contains(outcome.Message, "spans of attempt") || !strings.Contains(outcome.Message, "no room") {
			t.Errorf("message is %q", outcome.Message)
		}
	})
}

func TestReportSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		calls := 0
		s.updateAttempt = func(agl.UpdateAttemptParams) error {
			if calls++; calls < 5 {
				return agl.Errorf(agl.CodeUnavailable, "away")
			}
			return nil
		}
		id := enqueue(t, s, agl.RolloutConfig{})
		runOne(t, runner.Config{Store: s, Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
			return agl.RewardResult(1), nil
		})})
		checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
	})
}

// The result of an attempt that ends while the store is away is not lost as long as the runner waits for the store.
func TestLongOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		var back atomic.Pointer[time.Time]
		back.Store(new(time.Now()))
		away := func() error {
			if time.Now().Before(*back.Load()) {
				return agl.Errorf(agl.CodeUnavailable, "away")
			}
			return nil
		}
		s.addSpans = func(agl.AddSpansParams) error { return away() }
		s.updateAttempt = func(agl.UpdateAttemptParams) error { return away() }
		id := enqueue(t, s, agl.RolloutConfig{})
		runOne(t, runner.Config{Store: s, Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
			back.Store(new(time.Now().Add(4 * time.Minute)))
			return agl.RewardResult(1), nil
		})})
		checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
	})
}

// slowReports is a store whose answers to reports of an end take some time.
type slowReports struct{ agl.Store }

// UpdateAttempt implements [agl.Store].
func (s slowReports) UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error) {
	answer, err := s.Store.UpdateAttempt(ctx, p)
	if *p.Status != agl.AttemptRunning {
		time.Sleep(15 * time.Second)
	}
	return answer, err
}

// TestHeartbeatWhileTheEndIsReported: the store no longer has an attempt whose end the runner has reported, which is not the store's doing.
func TestHeartbeatWhileTheEndIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		id := enqueue(t, s, agl.RolloutConfig{})
		var log bytes.Buffer
		runOne(t, runner.Config{Store: slowReports{s}, HeartbeatInterval: 10 * time.Second, Agent: agl.AgentFunc(done), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
		if strings.Contains(log.String(), "has ended the attempt") {
			t.Errorf("the log says that the store has ended the attempt:\n%s", log.String())
		}
	})
}

// Whoever reads that an attempt could not be reported learns what becomes of it.
func TestUnreportedAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config agl.RolloutConfig
		want   string
	}{
		"silence": {agl.RolloutConfig{UnresponsiveSeconds: seconds(90), TimeoutSeconds: seconds(600)}, "until unresponsive_seconds (90) have passed"},
		"timeout": {agl.RolloutConfig{TimeoutSeconds: seconds(600)}, "until timeout_seconds (600) have passed"},
		"no end":  {agl.RolloutConfig{}, "agl cancel ro-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t)
			s.updateAttempt = func(p agl.UpdateAttemptParams) error {
				if *p.Status == agl.AttemptRunning {
					return nil
				}
				return agl.Errorf(agl.CodeUnauthorized, "the key is revoked")
			}
			enqueue(t, s, c.config)
			var log bytes.Buffer
			runOne(t, runner.Config{Store: s, Agent: agl.AgentFunc(done), Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if !strings.Contains(log.String(), c.want) {
				t.Errorf("the log has no %q:\n%s", c.want, &log)
			}
		})
	}
}
