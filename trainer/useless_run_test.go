package trainer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/tracer"
	"github.com/agl-go/agl/trainer"
)

// A run from which nothing can be learned is an error, and ends early.
func TestUselessRun(t *testing.T) {
	t.Parallel()
	mute := agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) { return agl.Result{}, nil })
	for name, test := range map[string]struct {
		agent     agl.Agent
		algorithm agl.Algorithm
		tasks     int
		change    func(c *trainer.Config)
		want      string // empty is success
	}{
		"a reward":  {rewarded, agl.AlgorithmFunc(onePass), 30, nil, ""},
		"no reward": {mute, agl.AlgorithmFunc(onePass), 30, nil, "no rollout has a usable reward: 20 of 20 are without\n  the agent ended well without a reward ×20, first in ro-…\na program finds its task in $AGL_TASK and the file $AGL_TASK_FILE; only with keepalive: stdio"},
		"all hang":  {agl.AgentFunc(hanging), callLearner{seconds: 0.01}, 30, nil, "no rollout has a usable reward: 20 of 20 are without\n…timeout: the agent had not ended after 0.01s ×…; agent.timeout is the time that it has, and with agent.keepalive it replies with a line such as"}, // the store may be the first to notice
		"all print and hang": {agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
			if _, err := tracer.EmitMessage(ctx, "hello\nworld\n", tracer.WithAttributes(agl.Attr{Key: process.AttrStream, Value: "stdout"})); err != nil {
				return agl.Result{}, err
			}
			return hanging(ctx, task)
		}), callLearner{seconds: 5}, 3, nil, "3 of 3 are without\n  timeout: …\nthe last line that an agent printed: \"world\"\nno agent has …has, and with agent.keepalive it replies with a line such as {\"reward\": 0.7}"},
		"all panic": {agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) { panic("boom") }),
			callLearner{}, 30, nil, "20 of 20 are without\n  panic: boom, at "},
		"the model is away": {agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
			return agl.Result{}, &agl.OutcomeError{Kind: agl.OutcomeModelError, Err: errors.New("no connection")}
		}), callLearner{}, 30, nil, "30 of 30 are without\n  model_error: "},
		"the model refuses the calls": {agl.AgentFunc(func(ctx context.Context, _ agl.Task) (agl.Result, error) {
			trace, _ := tracer.FromContext(ctx)
			refused := agl.Span{Name: agl.SpanProxyRequest, Status: agl.SpanStatus{Code: agl.StatusError, Description: agl.Some("no such model")}}
			return agl.Result{}, errors.Join(errors.New("HTTPError 404"), trace.Add(ctx, refused))
		}), callLearner{}, 3, nil, "\n  HTTPError 404 ×3…\nthe first of them in full:\n  HTTPError 404\n  its last call of the model failed: no such model\n"},
		"the model does not exist": {agl.AgentFunc(func(ctx context.Context, _ agl.Task) (agl.Result, error) {
			trace, _ := tracer.FromContext(ctx)
			refused := agl.SpanStatus{Code: agl.StatusError, Description: agl.Some("no such model")}
			call := agl.Span{Name: agl.SpanLiteLLMRequest, Status: refused}
			var err error
			if call.Attributes, err = call.Attributes.With(agl.Attr{Key: record.AttrErrorSource, Value: record.SourceGateway}, agl.Attr{Key: record.AttrStatus, Value: 404}); err != nil {
				return agl.Result{}, err
			}
			err = errors.Join(trace.Add(ctx, agl.Span{Name: agl.SpanProxyRequest, Status: refused}), trace.Add(ctx, call))
			return agl.Result{}, &agl.OutcomeError{Kind: agl.OutcomeModelError, Err: errors.Join(errors.New("HTTPError 404"), err)}
		}), callLearner{}, 30, nil, "20 of 20 are without\n  model_error: no such model ×20"},
		"all are cancelled": {agl.AgentFunc(hanging), agl.AlgorithmFunc(cancelAll), 3, nil,
			"3 of 3 are without\n  cancelled before it had ended ×3, first in ro-…\nthe time of a group is group_timeout, where that is given"},
		"only validation has a reward": {agl.AgentFunc(func(_ context.Context, task agl.Task) (agl.Result, error) {
			if task.Rollout.Mode == agl.ModeTrain {
				return agl.Result{}, errors.New("ValueError: boom")
			}
			return agl.RewardResult(1), nil
		}), agl.AlgorithmFunc(validateThenTrain), 3, nil, "no training rollout has a usable reward: 3 of 3 are without\n  ValueError: boom ×3, first in ro-…\nvalidation rollouts have rewards, but teach nothing"},
		"few without reward": {mute, agl.AlgorithmFunc(onePass), 2, nil, "2 of 2 are without"},
		"none is needed":     {mute, agl.AlgorithmFunc(onePass), 30, func(c *trainer.Config) { c.Unrewarded = true }, ""},
		"no call":            {rewarded, callLearner{}, 30, nil, "no model call was recorded in 20 rollouts, and the algorithm learns from the calls: …; an agent in Go has all three from task.LLM()"},
		"few without a call": {rewarded, callLearner{}, 1, nil, "no model call was recorded in 1 rollouts"},
		"an error": {agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
			return agl.Result{}, errors.New("boom\nValueError: boom")
		}), callLearner{}, 3, nil, "ValueError: boom ×3, first in ro-"},
		"a reward and an error": {agl.AgentFunc(func(ctx context.Context, _ agl.Task) (agl.Result, error) {
			_, err := tracer.EmitReward(ctx, 0.1)
			return agl.Result{}, errors.Join(errors.New("too many turns"), err)
		}), agl.AlgorithmFunc(callLearner{}.Run), 30, nil, ""},
		"an error of Node": {failing("exit status 1: file.ts:1\n  throw new E()\n  ^\n\nTypeError [ERR_X]: no such thing: x\n    at f (file:1)\n  code: 'ERR_X'\n}\n\nNode.js v20.1.0"),
			callLearner{}, 3, nil, "\n  TypeError [ERR_X]: no such thing: x ×3"},
		"an error of several lines": {failing("Traceback (most recent call last):\npydantic_core.ValidationError: 1 error for X\nfield\n  missing\n    see https://errors.dev"),
			callLearner{}, 3, nil, "\n  pydantic_core.ValidationError: 1 error for X ×3"},
		"a panic of Go": {failing("the agent ended with exit status 2: panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/a.go:3 +0x1"), callLearner{}, 3, nil, "\n  panic: boom ×3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := trainer.Config{Agent: test.agent, Algorithm: test.algorithm, Train: tasks(test.tasks), InitialResources: prompt(), Runners: 3, Database: "memory:"}
			if test.change != nil {
				test.change(&cfg)
			}
			switch err := fit(t.Context(), cfg); {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "":
				for want := range strings.SplitSeq(test.want, "…") {
					if !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want %q", err, want)
					}
				}
			}
		})
	}
}

// failing is an agent that fails with a text.
func failing(text string) agl.Agent {
	return agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) { return agl.Result{}, errors.New(text) })
}

// callLearner learns from model calls, and only waits for its rollouts.
type callLearner struct {
	seconds float64 // that an attempt has; 0 is any number
}

func (callLearner) LearnsFromCalls() bool { return true }

func (l callLearner) Run(ctx context.Context, in agl.AlgorithmInput) error {
	var wanted []agl.EnqueueRollout
	var config *agl.RolloutConfig
	if l.seconds > 0 {
		config = &agl.RolloutConfig{TimeoutSeconds: agl.Some(l.seconds)}
	}
	for i := range in.Train.Len() {
		task, err := in.Train.Task(i)
		if err != nil {
			return err
		}
		wanted = append(wanted, agl.EnqueueRollout{Input: task, Mode: agl.ModeTrain, Config: config})
	}
	for _, err := range algorithm.Rollouts(ctx, algorithm.RolloutsParams{Store: in.Store, Rollouts: wanted, GroupSize: len(wanted)}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// validateThenTrain is an algorithm that runs its first task for validation, and then all for training.
func validateThenTrain(ctx context.Context, in agl.AlgorithmInput) error {
	task, err := in.Train.Task(0)
	if err != nil {
		return err
	}
	for _, err := range algorithm.Rollouts(ctx, algorithm.RolloutsParams{Store: in.Store, Rollouts: []agl.EnqueueRollout{{Input: task, Mode: agl.ModeVal}}}) {
		if err != nil {
			return err
		}
	}
	return callLearner{}.Run(ctx, in)
}

// cancelAll is an algorithm that cancels its rollouts, as grpo does when the time of their group is over, and waits for them.
func cancelAll(ctx context.Context, in agl.AlgorithmInput) error {
	queued, err := in.Store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, in.Train.Len())})
	if err != nil {
		return err
	}
	var ids []string
	for _, r := range queued {
		ids = append(ids, r.RolloutID)
	}
	if err := algorithm.Cancel(ctx, in.Store, ids); err != nil {
		return err
	}
	_, err = in.Store.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: ids})
	return err
}

// hanging is an agent that does not end before its time is up.
func hanging(ctx context.Context, _ agl.Task) (agl.Result, error) {
	<-ctx.Done()
	return agl.Result{}, ctx.Err()
}

// A failure that the model's calls explain is told in the same words before a rollout had a reward and after it.
func TestFailuresAreAlikeBeforeAndAfterTheFirstReward(t *testing.T) {
	t.Parallel()
	fails := func(ctx context.Context) (agl.Result, error) {
		trace, _ := tracer.FromContext(ctx)
		refused := agl.SpanStatus{Code: agl.StatusError, Description: agl.Some("the prompt is too long")}
		call := agl.Span{Name: agl.SpanLiteLLMRequest, Status: refused}
		var err error
		if call.Attributes, err = call.Attributes.With(agl.Attr{Key: record.AttrDelivered, Value: true},
			agl.Attr{Key: record.AttrOutcome, Value: string(agl.OutcomeContextOverflow)}, agl.Attr{Key: record.AttrStatus, Value: 400}); err != nil {
			return agl.Result{}, err
		}
		return agl.Result{}, errors.Join(errors.New("HTTPError 400"), trace.Add(ctx, agl.Span{Name: agl.SpanProxyRequest, Status: refused}), trace.Add(ctx, call))
	}
	task := 0
	tr, err := trainer.New(trainer.Config{
		Agent: agl.AgentFunc(func(ctx context.Context, _ agl.Task) (agl.Result, error) {
			if task++; task == 2 { // one runner: one task at a time
				return agl.RewardResult(1), nil
			}
			return fails(ctx)
		}),
		Algorithm: agl.AlgorithmFunc(callLearner{}.Run), Train: tasks(4), InitialResources: prompt(), Runners: 1, Database: "memory:",
	})
	if err == nil {
		err = tr.Fit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	failures := tr.Failures()
	if len(failures) != 1 || failures[0].Count != 3 || failures[0].Reason != "context_overflow: HTTPError 400" ||
		failures[0].Message != "HTTPError 400\nits last call of the model failed: the prompt is too long" {
		t.Errorf("got %+v, want one reason for three rollouts", failures)
	}
}
