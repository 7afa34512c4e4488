package runner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
)

// attempt is one execution of a rollout by this runner.
type attempt struct {
	r       *Runner
	worker  string
	rollout agl.Rollout
	attempt agl.Attempt
	cancel  context.CancelCauseFunc
	lost    atomic.Bool
}

// lose ends an attempt that the store has ended.
func (a *attempt) lose() {
	a.lost.Store(true)
	a.cancel(errLost)
}

// run does everything up to the report. ctx is the runner's, life the
// attempt's: it ends first.
func (a *attempt) run(ctx, life context.Context) agl.Outcome {
	resources, err := a.resources(life)
	if err != nil {
		return a.ended(life, err, agl.OutcomeSetupError)
	}
	task := agl.Task{Rollout: a.rollout, Attempt: a.attempt, Resources: resources}
	a.hooks(life, "OnRolloutStart", func(ctx context.Context, h agl.Hook) error { return h.OnRolloutStart(ctx, task) })

	traced, outcome, spans := a.traced(ctx, life, task)
	proxied := proxies(resources)
	if len(a.r.cfg.Hooks) > 0 {
		// Hooks see what the proxy recorded, too.
		outcome = a.flush(ctx, proxied, outcome)
		outcome = a.rolloutEnd(ctx, life, traced, task, spans, outcome)
	}
	return a.flush(ctx, proxied, outcome)
}

// resources fetches the resources that the rollout is to run with.
func (a *attempt) resources(ctx context.Context) (agl.Resources, error) {
	ctx, cancel := context.WithTimeout(ctx, a.r.cfg.ReportTimeout)
	defer cancel()
	var update agl.ResourcesUpdate
	err := retry(ctx, func(ctx context.Context) (err error) {
		if a.rollout.ResourcesID.Valid {
			update, err = a.r.cfg.Store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: a.rollout.ResourcesID.V})
		} else {
			update, err = a.r.cfg.Store.GetLatestResources(ctx)
		}
		return err
	})
	switch {
	case err == nil:
		return update.Resources, nil
	case !errors.Is(err, agl.ErrNotFound):
		return nil, fmt.Errorf("fetch resources: %w", err)
	case a.rollout.ResourcesID.Valid:
		return nil, fmt.Errorf("the rollout asks for resources %q, which the store does not have: %w", a.rollout.ResourcesID.V, err)
	default:
		return nil, fmt.Errorf("the rollout names no resources and the store has none; add resources before rollouts are run: %w", err)
	}
}

// traced runs the agent inside a trace, records what it hands back and returns
// the context and the spans of the trace.
func (a *attempt) traced(ctx, life context.Context, task agl.Task) (context.Context, agl.Outcome, []agl.Span) {
	traceCtx, trace, err := a.startTrace(life)
	if err != nil {
		return life, a.ended(life, fmt.Errorf("start the trace: %w", err), agl.OutcomeSetupError), nil
	}
	a.hooks(traceCtx, "OnTraceStart", func(ctx context.Context, h agl.Hook) error { return h.OnTraceStart(ctx, task) })
	result, err := a.callAgent(traceCtx, task)
	outcome := a.ended(life, err, agl.OutcomeAgentError)
	if outcome.Kind == agl.OutcomeAgentError {
		if failure := tracer.ModelFailure(traceCtx); failure != nil {
			outcome.Kind = failure.Kind
		}
	}

	closing, cancel := a.r.closing(ctx)
	defer cancel()
	afterwards, stop := a.afterwards(life, traceCtx)
	defer stop()
	a.hooks(afterwards, "OnTraceEnd", func(ctx context.Context, h agl.Hook) error { return h.OnTraceEnd(ctx, task) })
	switch outcome.Kind {
	case agl.OutcomeOK:
		if err := record(closing, traceCtx, trace, result); err != nil {
			outcome = agl.Outcome{Kind: agl.OutcomeAgentError, Message: "result of the agent: " + err.Error()}
		}
	case agl.OutcomePanic:
		a.recordPanic(closing, traceCtx, trace, err)
	default:
	}
	spans, err := trace.End(closing)
	if err != nil {
		outcome = a.spoiled(outcome, lossKind(err), err)
	}
	return traceCtx, outcome, spans
}

func (a *attempt) startTrace(ctx context.Context) (context.Context, agl.Trace, error) {
	return a.r.cfg.Tracer.Start(ctx, agl.TraceParams{
		RolloutID: a.rollout.RolloutID, AttemptID: a.attempt.AttemptID, Name: a.rollout.RolloutID, OnCancelled: a.lose,
	})
}

// lossKind tells whose fault spans are that could not be stored.
func lossKind(err error) agl.OutcomeKind {
	if errors.Is(err, agl.ErrInvalid) {
		return agl.OutcomeAgentError
	}
	return agl.OutcomeSetupError
}

// afterwards returns the context for the hooks that follow the agent: traced,
// or what is left of it for a grace period when the attempt has ended early.
func (a *attempt) afterwards(life, traced context.Context) (context.Context, context.CancelFunc) {
	if life.Err() == nil {
		return traced, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(traced), a.r.cfg.GracePeriod)
}

// rolloutEnd runs the last hooks with every span of the attempt. The trace goes on
// for them, so that what they emit still counts.
func (a *attempt) rolloutEnd(ctx, life, traced context.Context, task agl.Task, spans []agl.Span, outcome agl.Outcome) agl.Outcome {
	closing, cancel := a.r.closing(ctx)
	defer cancel()
	page, err := a.r.cfg.Store.QuerySpans(closing, agl.QuerySpansParams{RolloutID: a.rollout.RolloutID, AttemptID: a.attempt.AttemptID})
	if err != nil {
		a.r.cfg.Logger.WarnContext(ctx, "OnRolloutEnd gets only the spans of the runner's own trace",
			"rollout_id", a.rollout.RolloutID, "attempt_id", a.attempt.AttemptID, "error", err)
	} else {
		spans = page.Items
	}
	traceCtx, trace, err := a.startTrace(traced)
	if err != nil {
		return a.spoiled(outcome, agl.OutcomeSetupError, fmt.Errorf("start the trace of OnRolloutEnd: %w", err))
	}
	afterwards, stop := a.afterwards(life, traceCtx)
	defer stop()
	a.hooks(afterwards, "OnRolloutEnd", func(ctx context.Context, h agl.Hook) error { return h.OnRolloutEnd(ctx, task, spans) })
	ending, cancelEnding := a.r.closing(ctx)
	defer cancelEnding()
	if _, err := trace.End(ending); err != nil {
		return a.spoiled(outcome, lossKind(err), err)
	}
	return outcome
}

// hooks calls one method of every hook. Errors and panics are logged.
func (a *attempt) hooks(ctx context.Context, name string, call func(context.Context, agl.Hook) error) {
	for i, h := range a.r.cfg.Hooks {
		err := safely(func() error { return call(ctx, h) })
		if err == nil {
			continue
		}
		log := a.r.cfg.Logger
		if p, ok := errors.AsType[*panicError](err); ok {
			log = log.With("stack", p.stack)
		}
		log.ErrorContext(ctx, "hook failed", "hook", fmt.Sprintf("%d (%T)", i, h), "method", name,
			"rollout_id", a.rollout.RolloutID, "attempt_id", a.attempt.AttemptID, "error", err)
	}
}

// ended tells the outcome of what returned err. When the attempt was ended from
// outside, that is the outcome, whatever came back: it may be cut short.
func (a *attempt) ended(life context.Context, err error, otherwise agl.OutcomeKind) agl.Outcome {
	detail := ""
	if err != nil && !errors.Is(err, context.Cause(life)) && !agl.IsContextError(err) {
		detail = "; " + err.Error()
	}
	switch cause := context.Cause(life); {
	case errors.Is(cause, errTimeout):
		return agl.Outcome{Kind: agl.OutcomeTimeout, Message: cause.Error() + detail}
	case cause != nil:
		return agl.Outcome{Kind: agl.OutcomeCancelled, Message: cause.Error() + detail}
	}
	outcome := agl.OutcomeOf(err)
	if outcome.Kind == agl.OutcomeAgentError {
		outcome.Kind = otherwise
	}
	return outcome
}

// spoiled is the outcome of an attempt some of whose record is missing. It says
// nothing about the agent any more, so an outcome that would count is replaced.
func (a *attempt) spoiled(outcome agl.Outcome, kind agl.OutcomeKind, err error) agl.Outcome {
	if outcome.Kind.Masked() {
		return outcome
	}
	return agl.Outcome{Kind: kind, Message: err.Error()}
}

// flush passes the barrier of the proxies that the attempt called: a reader of a
// finished attempt must find every call.
func (a *attempt) flush(ctx context.Context, endpoints []string, outcome agl.Outcome) agl.Outcome {
	if len(endpoints) == 0 || a.lost.Load() {
		return outcome
	}
	closing, cancel := a.r.closing(ctx)
	defer cancel()
	err := retry(closing, func(ctx context.Context) error {
		return a.r.barrier.pass(ctx, endpoints, a.rollout.RolloutID, a.attempt.AttemptID)
	})
	if err == nil {
		return outcome
	}
	a.r.cfg.Logger.ErrorContext(ctx, "model calls of the attempt may be missing from the store",
		"rollout_id", a.rollout.RolloutID, "attempt_id", a.attempt.AttemptID, "error", err)
	return a.spoiled(outcome, agl.OutcomeSetupError, err)
}

// report tells the store how the attempt ended.
func (a *attempt) report(ctx context.Context, outcome agl.Outcome) error {
	closing, cancel := a.r.closing(ctx)
	defer cancel()
	status := agl.AttemptFailed
	switch outcome.Kind {
	case agl.OutcomeOK:
		status = agl.AttemptSucceeded
	case agl.OutcomeTimeout:
		status = agl.AttemptTimeout
	default:
	}
	err := retry(closing, func(ctx context.Context) error {
		_, err := a.r.cfg.Store.UpdateAttempt(ctx, agl.UpdateAttemptParams{
			RolloutID: a.rollout.RolloutID, AttemptID: a.attempt.AttemptID,
			Status: &status, Metadata: agl.WithOutcome(a.attempt.Metadata, outcome),
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("report attempt %s as %s: %w", a.attempt.AttemptID, status, err)
	}
	return nil
}
