package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
)

// panicError is a panic of the agent or of a hook.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

var (
	errGoexit = errors.New("it ended its goroutine (runtime.Goexit) instead of returning")
	errStuck  = errors.New("the agent did not return within the grace period and was left behind")
)

// safely calls f and turns a panic into an error.
func safely(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: string(debug.Stack())}
		}
	}()
	return f()
}

type answer struct {
	result agl.Result
	err    error
}

// callAgent runs the agent and waits for its answer, at most a grace period
// longer than ctx lasts.
func (a *attempt) callAgent(ctx context.Context, task agl.Task) (agl.Result, error) {
	answers := make(chan answer, 1)
	go func() {
		out := answer{err: errGoexit}
		defer func() { answers <- out }()
		out.err = safely(func() (err error) {
			out.result, err = a.r.cfg.Agent.Run(ctx, task)
			return err
		})
	}()
	select {
	case out := <-answers:
		return out.result, typed(out.err)
	case <-ctx.Done():
	}
	timer := time.NewTimer(a.r.cfg.GracePeriod)
	defer timer.Stop()
	select {
	case out := <-answers:
		return out.result, typed(out.err)
	case <-timer.C:
	}
	a.r.abandoned.Add(1)
	log := a.r.cfg.Logger.With("rollout_id", a.rollout.RolloutID, "attempt_id", a.attempt.AttemptID)
	log.ErrorContext(ctx, "agent ignores the end of its context and is left behind", "worker_id", a.worker, "abandoned", a.r.Abandoned())
	go func() {
		out := <-answers
		a.r.abandoned.Add(-1)
		log.Info("agent that was left behind has returned", "error", out.err)
	}()
	return agl.Result{}, errStuck
}

// typed gives a panic its outcome.
func typed(err error) error {
	if p, ok := errors.AsType[*panicError](err); ok {
		return &agl.OutcomeError{Kind: agl.OutcomePanic, Err: p}
	}
	return err
}

// record stores what the agent handed back.
func record(ctx, traced context.Context, trace agl.Trace, result agl.Result) error {
	given := 0
	for _, n := range []int{len(result.Rewards), len(result.Spans), len(result.Drafts)} {
		if n > 0 {
			given++
		}
	}
	if given > 1 {
		return agl.Errorf(agl.CodeInvalid, "%d rewards, %d spans and %d drafts were given; only one of the three may be",
			len(result.Rewards), len(result.Spans), len(result.Drafts))
	}
	drafts := result.Drafts
	if len(result.Rewards) > 0 {
		draft, err := tracer.RewardDraft(result.Rewards...)
		if err != nil {
			return err
		}
		drafts = []agl.SpanDraft{draft}
	}
	spans := slices.Clone(result.Spans)
	for _, d := range drafts {
		spans = append(spans, tracer.SpanFromDraft(traced, d))
	}
	if len(spans) == 0 {
		return nil
	}
	return trace.Add(ctx, spans...)
}

// recordPanic stores an exception span with the stack of the panic.
func (a *attempt) recordPanic(ctx, traced context.Context, trace agl.Trace, cause error) {
	p, ok := errors.AsType[*panicError](cause)
	if !ok {
		return
	}
	draft, err := tracer.ExceptionDraft(p, p.stack)
	if err == nil {
		err = trace.Add(ctx, tracer.SpanFromDraft(traced, draft))
	}
	if err != nil {
		a.r.cfg.Logger.ErrorContext(ctx, "the panic's exception span was not recorded",
			"rollout_id", a.rollout.RolloutID, "attempt_id", a.attempt.AttemptID, "error", err)
	}
}
