package agl

import "context"

// Hook watches attempts. A runner calls its hooks in order. Their errors are logged and never fail an attempt.
//
// A start hook may return a context, derived from its own, for the hooks that follow and for the agent; nil keeps the
// context as it is. If the returned context ends before the agent has returned, the attempt is cancelled.
//
// In a hook, runner.FromContext returns the runner, which has the agent, the tracer and the store, and
// trainer.FromContext returns the trainer if there is one in this process.
type Hook interface {
	// OnRolloutStart runs before tracing starts.
	OnRolloutStart(ctx context.Context, task Task) (context.Context, error)
	// OnTraceStart runs within the trace, before the agent.
	OnTraceStart(ctx context.Context, task Task) (context.Context, error)
	// OnTraceEnd runs within the trace, after the agent. The end has no spans yet.
	OnTraceEnd(ctx context.Context, task Task, end AttemptEnd) error
	// OnRolloutEnd runs when the trace has ended, with all spans of the attempt, and before the attempt is reported: a
	// reward that it emits still counts.
	OnRolloutEnd(ctx context.Context, task Task, end AttemptEnd) error
	// OnReported runs last, when the attempt is over for the store: it was reported, the report has failed for good,
	// or the store had ended the attempt itself. It runs whenever OnRolloutStart did, and releases what that has set
	// up.
	OnReported(ctx context.Context, task Task, end AttemptEnd) error
}

// AttemptEnd says how an attempt ended, as far as is known when a hook is called.
type AttemptEnd struct {
	Outcome Outcome
	Status  AttemptStatus // the status that will be, or was, reported
	Spans   []Span        // of the attempt, by sequence id
}

// UnimplementedHook does nothing. Embed it to implement only some methods of [Hook].
type UnimplementedHook struct{}

var _ Hook = UnimplementedHook{}

// OnRolloutStart does nothing.
func (UnimplementedHook) OnRolloutStart(context.Context, Task) (context.Context, error) {
	return nil, nil //nolint:nilnil // the context stays as it is
}

// OnTraceStart does nothing.
func (UnimplementedHook) OnTraceStart(context.Context, Task) (context.Context, error) {
	return nil, nil //nolint:nilnil // the context stays as it is
}

// OnTraceEnd does nothing.
func (UnimplementedHook) OnTraceEnd(context.Context, Task, AttemptEnd) error { return nil }

// OnRolloutEnd does nothing.
func (UnimplementedHook) OnRolloutEnd(context.Context, Task, AttemptEnd) error { return nil }

// OnReported does nothing.
func (UnimplementedHook) OnReported(context.Context, Task, AttemptEnd) error { return nil }
