package agl

import "context"

// Hook watches attempts. A runner calls its hooks in order. Their errors are logged and never fail an attempt.
//
// A start hook may return a context for the hooks that follow and for the agent, with what it has set up. It must be
// derived from the one that the hook was called with; nil leaves that as it is. If it ends before the agent has
// returned, the attempt is cancelled.
//
// runner.FromContext gives a hook the runner, and so its agent, tracer and store; trainer.FromContext the trainer, if there
// is one in the process.
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
	// OnReported runs last, when the attempt is over for the store: it was reported, the report has failed for good, or
	// the store had ended the attempt itself. It runs whenever OnRolloutStart did, and releases what that has set up.
	OnReported(ctx context.Context, task Task, end AttemptEnd) error
}

// AttemptEnd is how an attempt ended, as far as is known when a hook is called.
type AttemptEnd struct {
	Outcome Outcome
	Status  AttemptStatus // that will be reported, or was
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
