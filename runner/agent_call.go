package runner

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/panics"
	"github.com/agl-go/agl/tracer"
)

var errAbandoned = errors.New("the agent did not return within the grace period and was left behind")

// agentAnswer is what an agent returned, and why its context had ended by then; nil if it had not.
type agentAnswer struct {
	result agl.Result
	err    error
	cause  error
}

// callAgent runs the agent and waits for its answer, for at most a grace period after ctx ends. An agent that has not
// returned by then counts as abandoned until it does.
func (s *shared) callAgent(ctx context.Context, task agl.Task, log *slog.Logger) agentAnswer {
	if ctx.Err() != nil { // the attempt ended while it was prepared
		return agentAnswer{err: ctx.Err(), cause: context.Cause(ctx)}
	}
	answers := make(chan agentAnswer, 1)
	go func() {
		answer := agentAnswer{err: panics.ErrGoexit}
		defer func() {
			answer.cause = context.Cause(ctx)
			answers <- answer
		}()
		answer.err = typed(panics.Catch(func() (err error) {
			answer.result, err = s.cfg.Agent.Run(ctx, task)
			return err
		}))
	}()
	select {
	case answer := <-answers:
		return answer
	case <-ctx.Done():
	}
	select {
	case answer := <-answers:
		return answer
	case <-time.After(s.cfg.GracePeriod):
	}
	log.ErrorContext(ctx, "agent ignores the end of its context and is left behind", "abandoned", s.abandoned.Add(1))
	go func() {
		answer := <-answers
		s.abandoned.Add(-1)
		log.Info("agent that was left behind has returned", "error", answer.err)
	}()
	return agentAnswer{err: errAbandoned, cause: context.Cause(ctx)}
}

// typed gives a panic its outcome.
func typed(err error) error {
	if _, ok := errors.AsType[*panics.Error](err); ok {
		return &agl.OutcomeError{Kind: agl.OutcomePanic, Err: panics.Located(err)}
	}
	return err
}

// record stores what the agent returned, the reward last. traced is the context of the trace.
func record(ctx, traced context.Context, trace agl.Trace, result agl.Result) error {
	drafts := result.Drafts
	if len(result.Rewards) > 0 {
		draft, err := tracer.RewardDraft(result.Rewards...)
		if err != nil {
			return err
		}
		drafts = append(slices.Clone(drafts), draft)
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

// recordPanic stores an exception span with the stack of a panic.
func recordPanic(ctx, traced context.Context, trace agl.Trace, cause error) error {
	p, ok := errors.AsType[*panics.Error](cause)
	if !ok {
		return nil
	}
	draft, err := tracer.ExceptionDraft(p, p.Stack)
	if err != nil {
		return err
	}
	return trace.Add(ctx, tracer.SpanFromDraft(traced, draft))
}
