package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
)

// Why the context of an attempt ended.
var (
	errLost     = errors.New("the store has ended the attempt: its rollout was cancelled, or it ran out of time")
	errTimeout  = errors.New("the attempt's timeout has passed")
	errShutdown = errors.New("the runner is stopping")
)

// attempt is one execution of a rollout by this runner.
type attempt struct {
	*shared

	rollout agl.Rollout
	attempt agl.Attempt
	log     *slog.Logger
	cancel  context.CancelCauseFunc
	lost    atomic.Bool // the store has ended the attempt
}

// newAttempt returns the attempt of a claimed rollout, and the context of its agent,
// which ends before ctx's reports do. stop releases the context.
func newAttempt(ctx context.Context, s *shared, workerID string, rollout agl.AttemptedRollout) (a *attempt, life context.Context, stop func()) {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopShutdown := context.AfterFunc(ctx, func() { cancel(errShutdown) })
	stopTimeout := func() {}
	if timeout, ok := timeoutOf(&rollout); ok {
		life, stopTimeout = context.WithTimeoutCause(life, timeout, errTimeout)
	}
	return &attempt{
			shared: s, rollout: rollout.Rollout, attempt: *rollout.Attempt, cancel: cancel,
			log: s.attemptLog(rollout.RolloutID, rollout.Attempt.AttemptID).With("worker_id", workerID),
		}, life, func() {
			stopShutdown()
			stopTimeout()
			cancel(nil)
		}
}

// timeoutOf returns how long an attempt of the rollout may take.
func timeoutOf(rollout *agl.AttemptedRollout) (timeout time.Duration, ok bool) {
	const maxSeconds = 1e9 // more would overflow a Duration
	t := rollout.Config.TimeoutSeconds
	return time.Duration(min(max(t.V, 0), maxSeconds) * float64(time.Second)), t.Valid
}

// lose ends an attempt that the store has ended.
func (a *attempt) lose() {
	a.lost.Store(true)
	a.cancel(errLost)
}

// execute runs the attempt and reports it. The error says why it failed. ctx is the
// runner's context, life the attempt's.
func (a *attempt) execute(ctx, life context.Context) error {
	outcome := a.run(ctx, life)
	if a.lost.Load() {
		// The store knows the outcome already; a report would replace it.
		kind := agl.OutcomeCancelled
		timeout, ok := timeoutOf(&agl.AttemptedRollout{Rollout: a.rollout})
		if ok && agl.TimestampOf(time.Now()).Sub(a.attempt.StartTime) >= timeout {
			kind = agl.OutcomeTimeout
		}
		return &agl.OutcomeError{Kind: kind, Err: errLost}
	}
	err := a.report(ctx, outcome)
	if outcome.Kind == agl.OutcomeOK {
		return err
	}
	return errors.Join(&agl.OutcomeError{Kind: outcome.Kind, Err: errors.New(outcome.Message)}, err)
}

// run does everything up to the report.
func (a *attempt) run(ctx, life context.Context) agl.Outcome {
	resources, err := a.resources(life)
	if err != nil {
		return outcomeAfter(context.Cause(life), err, agl.OutcomeSetupError)
	}
	task := agl.Task{Rollout: a.rollout, Attempt: a.attempt, Resources: resources}
	a.hooks(life, "OnRolloutStart", func(ctx context.Context, h agl.Hook) error { return h.OnRolloutStart(ctx, task) })

	traced, outcome, spans := a.traced(ctx, life, task)
	proxied := proxies(resources)
	if len(a.cfg.Hooks) > 0 {
		// Hooks see what the proxy recorded, too.
		outcome = a.flush(ctx, proxied, outcome)
		outcome = a.rolloutEnd(ctx, life, traced, task, spans, outcome)
	}
	return a.flush(ctx, proxied, outcome)
}

// resources fetches the resources that the rollout is to run with.
func (a *attempt) resources(ctx context.Context) (agl.Resources, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReportTimeout)
	defer cancel()
	var update agl.ResourcesUpdate
	err := retry(ctx, func(ctx context.Context) (err error) {
		if a.rollout.ResourcesID.Valid {
			update, err = a.cfg.Store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: a.rollout.ResourcesID.V})
		} else {
			update, err = a.cfg.Store.GetLatestResources(ctx)
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

// traced runs the agent inside a trace, records what it returns, and returns the
// context and the spans of the trace.
func (a *attempt) traced(ctx, life context.Context, task agl.Task) (context.Context, agl.Outcome, []agl.Span) {
	traceCtx, trace, err := a.startTrace(life)
	if err != nil {
		return life, outcomeAfter(context.Cause(life), fmt.Errorf("start the trace: %w", err), agl.OutcomeSetupError), nil
	}
	a.hooks(traceCtx, "OnTraceStart", func(ctx context.Context, h agl.Hook) error { return h.OnTraceStart(ctx, task) })
	answer := a.callAgent(traceCtx, task, a.log)
	outcome := outcomeAfter(answer.ended, answer.err, agl.OutcomeAgentError)
	if outcome.Kind == agl.OutcomeAgentError {
		if failure := tracer.ModelFailure(traceCtx); failure != nil {
			outcome.Kind = failure.Kind
		}
	}

	reportCtx, cancel := a.reportContext(ctx)
	defer cancel()
	hookCtx, stop := a.hookContext(life, traceCtx)
	defer stop()
	a.hooks(hookCtx, "OnTraceEnd", func(ctx context.Context, h agl.Hook) error { return h.OnTraceEnd(ctx, task) })
	switch outcome.Kind {
	case agl.OutcomeOK:
		if err := record(reportCtx, traceCtx, trace, answer.result); err != nil {
			outcome = agl.Outcome{Kind: agl.OutcomeAgentError, Message: "result of the agent: " + err.Error()}
		}
	case agl.OutcomePanic:
		if err := recordPanic(reportCtx, traceCtx, trace, answer.err); err != nil {
			a.log.ErrorContext(ctx, "the panic's exception span was not recorded", "error", err)
		}
	default:
	}
	spans, err := trace.End(reportCtx)
	if err != nil {
		outcome = incomplete(outcome, lossKind(err), err)
	}
	return traceCtx, outcome, spans
}

func (a *attempt) startTrace(ctx context.Context) (context.Context, agl.Trace, error) {
	return a.cfg.Tracer.Start(ctx, agl.TraceParams{
		RolloutID: a.rollout.RolloutID, AttemptID: a.attempt.AttemptID, Name: a.rollout.RolloutID, OnCancelled: a.lose,
	})
}

// rolloutEnd runs the last hooks with every span of the attempt. The trace goes on
// for them, so that what they emit still counts.
func (a *attempt) rolloutEnd(ctx, life, traced context.Context, task agl.Task, spans []agl.Span, outcome agl.Outcome) agl.Outcome {
	reportCtx, cancel := a.reportContext(ctx)
	defer cancel()
	page, err := a.cfg.Store.QuerySpans(reportCtx, agl.QuerySpansParams{RolloutID: a.rollout.RolloutID, AttemptID: a.attempt.AttemptID})
	if err != nil {
		a.log.WarnContext(ctx, "OnRolloutEnd gets only the spans of the runner's own trace", "error", err)
	} else {
		spans = page.Items
	}
	traceCtx, trace, err := a.startTrace(traced)
	if err != nil {
		return incomplete(outcome, agl.OutcomeSetupError, fmt.Errorf("start the trace of OnRolloutEnd: %w", err))
	}
	hookCtx, stop := a.hookContext(life, traceCtx)
	defer stop()
	a.hooks(hookCtx, "OnRolloutEnd", func(ctx context.Context, h agl.Hook) error { return h.OnRolloutEnd(ctx, task, spans) })
	ending, cancelEnding := a.reportContext(ctx)
	defer cancelEnding()
	if _, err := trace.End(ending); err != nil {
		return incomplete(outcome, lossKind(err), err)
	}
	return outcome
}

// hookContext returns the context for the hooks that follow the agent: traced, or
// its values for a grace period when the attempt has ended early.
func (a *attempt) hookContext(life, traced context.Context) (context.Context, context.CancelFunc) {
	if life.Err() == nil {
		return traced, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(traced), a.cfg.GracePeriod)
}

// hooks calls one method of every hook. Errors and panics are logged.
func (a *attempt) hooks(ctx context.Context, name string, call func(context.Context, agl.Hook) error) {
	for i, h := range a.cfg.Hooks {
		err := catchPanic(func() error { return call(ctx, h) })
		if err == nil {
			continue
		}
		log := a.log
		if p, ok := errors.AsType[*panicError](err); ok {
			log = log.With("stack", p.stack)
		}
		log.ErrorContext(ctx, "hook failed", "hook", fmt.Sprintf("%d (%T)", i, h), "method", name, "error", err)
	}
}

// outcomeAfter returns the outcome of what returned err. When the attempt had been ended
// from outside by then, ended says why, and that is the outcome, whatever came back: it
// may be incomplete.
func outcomeAfter(ended, err error, otherwise agl.OutcomeKind) agl.Outcome {
	detail := ""
	if err != nil && !errors.Is(err, ended) && !agl.IsContextError(err) {
		detail = "; " + err.Error()
	}
	switch {
	case errors.Is(ended, errTimeout):
		return agl.Outcome{Kind: agl.OutcomeTimeout, Message: ended.Error() + detail}
	case ended != nil:
		return agl.Outcome{Kind: agl.OutcomeCancelled, Message: ended.Error() + detail}
	}
	outcome := agl.OutcomeOf(err)
	if outcome.Kind == agl.OutcomeAgentError {
		outcome.Kind = otherwise
	}
	return outcome
}

// incomplete is the outcome of an attempt of whose record a part is missing. Such a
// record says nothing about the agent, so an outcome that would count is replaced.
func incomplete(outcome agl.Outcome, kind agl.OutcomeKind, err error) agl.Outcome {
	if outcome.Kind.Masked() {
		return outcome
	}
	return agl.Outcome{Kind: kind, Message: err.Error()}
}

// lossKind says who is to blame for spans that could not be stored.
func lossKind(err error) agl.OutcomeKind {
	if errors.Is(err, agl.ErrInvalid) {
		return agl.OutcomeAgentError
	}
	return agl.OutcomeSetupError
}

// flush waits until the proxies that the attempt called have stored its calls: a
// reader of a finished attempt must find all of them.
func (a *attempt) flush(ctx context.Context, endpoints []string, outcome agl.Outcome) agl.Outcome {
	if len(endpoints) == 0 || a.lost.Load() {
		return outcome
	}
	reportCtx, cancel := a.reportContext(ctx)
	defer cancel()
	err := retry(reportCtx, func(ctx context.Context) error {
		return a.proxies.flush(ctx, endpoints, a.rollout.RolloutID, a.attempt.AttemptID)
	})
	if err == nil {
		return outcome
	}
	a.log.ErrorContext(ctx, "model calls of the attempt may be missing from the store", "error", err)
	return incomplete(outcome, agl.OutcomeSetupError, err)
}

// report tells the store how the attempt ended.
func (a *attempt) report(ctx context.Context, outcome agl.Outcome) error {
	reportCtx, cancel := a.reportContext(ctx)
	defer cancel()
	status := agl.AttemptFailed
	switch outcome.Kind {
	case agl.OutcomeOK:
		status = agl.AttemptSucceeded
	case agl.OutcomeTimeout:
		status = agl.AttemptTimeout
	default:
	}
	err := retry(reportCtx, func(ctx context.Context) error {
		_, err := a.cfg.Store.UpdateAttempt(ctx, agl.UpdateAttemptParams{
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
