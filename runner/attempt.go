package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
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
	claimed time.Time // by this machine's clock, which may differ from the store's
	log     *slog.Logger
	hooks   hooks
	cancel  context.CancelCauseFunc
	lost    chan struct{} // closed by lose
	losing  sync.Once
	ending  atomic.Bool    // the runner reports the end of the attempt
	begun   sync.WaitGroup // the report that the agent is running
}

// newAttempt returns the attempt of a claimed rollout, and the context of its agent. Reports may outlive that
// context. stop releases it.
func newAttempt(ctx context.Context, s *shared, workerID string, rollout agl.AttemptedRollout) (a *attempt, life context.Context, stop func()) {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopShutdown := context.AfterFunc(ctx, func() { cancel(errShutdown) })
	stopTimeout := func() {}
	if timeout, ok := timeoutOf(&rollout); ok {
		life, stopTimeout = context.WithTimeoutCause(life, timeout, errTimeout)
	}
	log := s.attemptLog(rollout.RolloutID, rollout.Attempt.AttemptID).With("worker_id", workerID)
	return &attempt{
			shared: s, rollout: rollout.Rollout, attempt: *rollout.Attempt, claimed: time.Now(), cancel: cancel, log: log, lost: make(chan struct{}),
			hooks: hooks{all: s.cfg.Hooks, log: log, grace: s.cfg.GracePeriod},
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
	a.losing.Do(func() { close(a.lost) })
	a.cancel(errLost)
}

// isLost reports whether the store has ended the attempt.
func (a *attempt) isLost() bool { return background.Closed(a.lost) }

// execute runs the attempt and reports it. The error says why it failed. ctx is the runner's context, life the attempt's.
func (a *attempt) execute(ctx, life context.Context) error {
	life = a.withRunner(life)
	resources, err := a.resources(life)
	if err != nil {
		_, err := a.conclude(ctx, outcomeAfter(context.Cause(life), err, agl.OutcomeSetupError))
		return err
	}
	task := agl.Task{Rollout: a.rollout, Attempt: a.attempt, Resources: resources}
	hooked := a.hooks.start(life, "OnRolloutStart", func(ctx context.Context, h agl.Hook) (context.Context, error) { return h.OnRolloutStart(ctx, task) })
	hooked, end := a.run(ctx, hooked, task)
	end.Outcome, err = a.conclude(ctx, end.Outcome)
	end.Status = statusOf(end.Outcome)
	a.hooks.end(hooked, "OnReported", func(ctx context.Context, h agl.Hook) error { return h.OnReported(ctx, task, end) })
	return err
}

// conclude reports the attempt, unless the store has ended it: the store then knows the outcome, and a report would
// replace it. The error says why the attempt failed.
func (a *attempt) conclude(ctx context.Context, outcome agl.Outcome) (agl.Outcome, error) {
	a.begun.Wait()
	if a.isLost() {
		outcome = agl.Outcome{Kind: agl.OutcomeCancelled, Message: errLost.Error()}
		timeout, ok := timeoutOf(&agl.AttemptedRollout{Rollout: a.rollout})
		// The store counts from a little earlier: its answer had to arrive.
		if ok && time.Since(a.claimed) >= timeout-min(timeout/10, time.Second) {
			outcome.Kind = agl.OutcomeTimeout
		}
		return outcome, &agl.OutcomeError{Kind: outcome.Kind, Err: errLost}
	}
	a.ending.Store(true)
	err := a.report(ctx, outcome)
	if outcome.Kind == agl.OutcomeOK {
		return outcome, err
	}
	return outcome, errors.Join(&agl.OutcomeError{Kind: outcome.Kind, Err: errors.New(outcome.Message)}, err)
}

// run does everything between OnRolloutStart and the report. hooked is the context that OnRolloutStart returned. It returns the context of the agent.
func (a *attempt) run(ctx, hooked context.Context, task agl.Task) (context.Context, agl.AttemptEnd) {
	hooked, end := a.runTraced(ctx, hooked, task)
	proxied := proxies(task.Resources)
	if len(a.cfg.Hooks) > 0 {
		// Hooks see what the proxy recorded, too.
		end.Outcome = a.flush(ctx, proxied, end.Outcome)
		end = a.rolloutEnd(ctx, hooked, task, end)
	}
	end.Outcome = a.flush(ctx, proxied, end.Outcome)
	return hooked, end
}

// resources fetches the resources for the rollout.
func (a *attempt) resources(ctx context.Context) (agl.Resources, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReportTimeout)
	defer cancel()
	var update agl.ResourcesUpdate
	err := retry(ctx, func(ctx context.Context) (err error) {
		if a.rollout.ResourcesID.Valid {
			update, err = a.cfg.Store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: a.rollout.ResourcesID.V, RolloutID: a.rollout.RolloutID})
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
		return nil, fmt.Errorf("the rollout names the resources %q, which the store does not have: %w", a.rollout.ResourcesID.V, err)
	default:
		return nil, fmt.Errorf("the rollout names no resources and the store has none; before rollouts are run, add some with POST /v1/agl/resources ({} for an agent that uses none): %w", err)
	}
}

// runTraced runs the agent inside a trace, records what it returns, and returns its context and how it ended.
func (a *attempt) runTraced(ctx, hooked context.Context, task agl.Task) (context.Context, agl.AttemptEnd) {
	traceCtx, trace, err := a.startTrace(hooked)
	if err != nil {
		return hooked, endWith(outcomeAfter(context.Cause(hooked), fmt.Errorf("start the trace: %w", err), agl.OutcomeSetupError), nil)
	}
	traceCtx = a.hooks.start(traceCtx, "OnTraceStart", func(ctx context.Context, h agl.Hook) (context.Context, error) { return h.OnTraceStart(ctx, task) })
	a.reportRunning(ctx, traceCtx)
	answer := a.callAgent(traceCtx, task, a.log)
	outcome := outcomeAfter(answer.cause, answer.err, agl.OutcomeAgentError)
	if outcome.Kind == agl.OutcomeAgentError {
		if failure := tracer.ModelFailure(traceCtx); failure != nil {
			outcome.Kind = failure.Kind
		}
	}

	reportCtx, cancel := a.reportContext(ctx)
	defer cancel()
	a.hooks.end(traceCtx, "OnTraceEnd", func(ctx context.Context, h agl.Hook) error { return h.OnTraceEnd(ctx, task, endWith(outcome, nil)) })
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
		outcome = incomplete(outcome, unstoredKind(err), err)
	}
	return traceCtx, endWith(outcome, spans)
}

// endWith returns the end of an attempt with an outcome.
func endWith(outcome agl.Outcome, spans []agl.Span) agl.AttemptEnd {
	return agl.AttemptEnd{Outcome: outcome, Status: statusOf(outcome), Spans: spans}
}

func (a *attempt) startTrace(ctx context.Context) (context.Context, agl.Trace, error) {
	return a.cfg.Tracer.Start(ctx, agl.TraceParams{
		RolloutID: a.rollout.RolloutID, AttemptID: a.attempt.AttemptID, Name: a.rollout.RolloutID, OnCancelled: a.lose,
	})
}

// rolloutEnd runs OnRolloutEnd with all spans of the attempt. The trace continues for the hooks, so that what they
// emit still counts.
func (a *attempt) rolloutEnd(ctx, hooked context.Context, task agl.Task, end agl.AttemptEnd) agl.AttemptEnd {
	reportCtx, cancel := a.reportContext(ctx)
	defer cancel()
	page, err := a.cfg.Store.QuerySpans(reportCtx, agl.QuerySpansParams{RolloutID: a.rollout.RolloutID, AttemptID: a.attempt.AttemptID})
	if err != nil {
		a.log.WarnContext(ctx, "OnRolloutEnd gets only the spans of the runner's own trace", "error", err)
	} else {
		end.Spans = page.Items
	}
	traceCtx, trace, err := a.startTrace(hooked)
	if err != nil {
		return endWith(incomplete(end.Outcome, agl.OutcomeSetupError, fmt.Errorf("start the trace of OnRolloutEnd: %w", err)), end.Spans)
	}
	end.Status = statusOf(end.Outcome)
	a.hooks.end(traceCtx, "OnRolloutEnd", func(ctx context.Context, h agl.Hook) error { return h.OnRolloutEnd(ctx, task, end) })
	ending, cancelEnding := a.reportContext(ctx)
	defer cancelEnding()
	late, err := trace.End(ending)
	if err != nil {
		end.Outcome = incomplete(end.Outcome, unstoredKind(err), err)
	}
	return endWith(end.Outcome, slices.Concat(end.Spans, late))
}

// outcomeAfter returns the outcome of an agent that returned err. cause says why the attempt was ended from outside,
// if it was; that is then the outcome, whatever the agent returned, because it may be incomplete.
func outcomeAfter(cause, err error, otherwise agl.OutcomeKind) agl.Outcome {
	detail := ""
	if err != nil && !errors.Is(err, cause) && !agl.IsContextError(err) {
		detail = "; " + err.Error()
	}
	switch {
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

// incomplete returns the outcome of an attempt whose record is incomplete. Such a record says nothing about the
// agent, so an outcome that would count is replaced.
func incomplete(outcome agl.Outcome, kind agl.OutcomeKind, err error) agl.Outcome {
	if outcome.Kind.Masked() {
		return outcome
	}
	return agl.Outcome{Kind: kind, Message: err.Error()}
}

// unstoredKind returns the outcome for spans that could not be stored, by who is to blame.
func unstoredKind(err error) agl.OutcomeKind {
	if errors.Is(err, agl.ErrInvalid) {
		return agl.OutcomeAgentError
	}
	return agl.OutcomeSetupError
}

// flush waits until the proxies that the attempt called have stored its calls, because a reader of a finished attempt
// must find all of them. Nobody waits for those of an attempt that the store has ended: its proxy may have ended with its run.
func (a *attempt) flush(ctx context.Context, endpoints []string, outcome agl.Outcome) agl.Outcome {
	if len(endpoints) == 0 || a.isLost() {
		return outcome
	}
	reportCtx, cancel := a.reportContext(ctx)
	defer cancel()
	flushing, stop := background.Until(reportCtx, a.lost)
	defer stop()
	err := a.proxies.flush(flushing, endpoints, a.rollout.RolloutID, a.attempt.AttemptID)
	if err == nil || a.isLost() {
		return outcome
	}
	a.log.ErrorContext(ctx, "model calls of the attempt, or what it emitted last, may be missing from the store", "error", err)
	return incomplete(outcome, agl.OutcomeSetupError, err)
}

// reportRunning reports that the agent is running, in parallel to it. conclude waits for the answer, so that it
// cannot overtake the final report. A failure does no harm: spans and heartbeats say the same.
func (a *attempt) reportRunning(ctx, agent context.Context) {
	if agent.Err() != nil {
		return
	}
	a.begun.Go(func() {
		reportCtx, cancel := a.reportContext(ctx)
		defer cancel()
		running := agl.AttemptRunning
		answer, err := a.cfg.Store.UpdateAttempt(reportCtx, agl.UpdateAttemptParams{
			RolloutID: a.rollout.RolloutID, AttemptID: a.attempt.AttemptID, Status: &running,
		})
		switch {
		case err != nil:
			a.log.WarnContext(ctx, "the attempt was not reported as running", "error", err)
		case answer.Status != running:
			a.log.InfoContext(ctx, "the store has ended the attempt", "status", answer.Status)
			a.lose()
		}
	})
}

// report reports to the store how the attempt ended.
func (a *attempt) report(ctx context.Context, outcome agl.Outcome) error {
	reportCtx, cancel := a.reportContext(ctx)
	defer cancel()
	status := statusOf(outcome)
	err := retry(reportCtx, func(ctx context.Context) error {
		_, err := a.cfg.Store.UpdateAttempt(ctx, agl.UpdateAttemptParams{
			RolloutID: a.rollout.RolloutID, AttemptID: a.attempt.AttemptID,
			Status: &status, Metadata: agl.WithOutcome(a.attempt.Metadata, outcome),
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("report attempt %q as %s: %w; %s", a.attempt.AttemptID, status, err, a.unreported())
	}
	return nil
}

// unreported says what becomes of an attempt whose end the store does not know.
func (a *attempt) unreported() string {
	const running = "it stays running in the store"
	config := a.rollout.Config
	switch {
	case config.UnresponsiveSeconds.Valid:
		return fmt.Sprintf("%s until unresponsive_seconds (%g) have passed since its last heartbeat or span", running, config.UnresponsiveSeconds.V)
	case config.TimeoutSeconds.Valid:
		return fmt.Sprintf("%s until timeout_seconds (%g) have passed since its start", running, config.TimeoutSeconds.V)
	}
	return fmt.Sprintf("%s, unless its server has --default-unresponsive: agl cancel %s ends it", running, a.rollout.RolloutID)
}

// statusOf returns the status that is reported for an outcome.
func statusOf(outcome agl.Outcome) agl.AttemptStatus {
	switch outcome.Kind {
	case agl.OutcomeOK:
		return agl.AttemptSucceeded
	case agl.OutcomeTimeout:
		return agl.AttemptTimeout
	}
	return agl.AttemptFailed
}
