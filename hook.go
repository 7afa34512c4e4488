package agl

import "context"

// Hook watches attempts. A runner calls its hooks in order. Their errors are
// logged and never fail an attempt.
type Hook interface {
	// OnRolloutStart runs before tracing starts.
	OnRolloutStart(ctx context.Context, task Task) error
	// OnTraceStart runs within the trace, before the agent.
	OnTraceStart(ctx context.Context, task Task) error
	// OnTraceEnd runs within the trace, after the agent.
	OnTraceEnd(ctx context.Context, task Task) error
	// OnRolloutEnd runs when the trace has ended, with all spans of the attempt, and
	// before the attempt is reported: a reward that it emits still counts.
	OnRolloutEnd(ctx context.Context, task Task, spans []Span) error
}

// UnimplementedHook does nothing. Embed it to implement only some methods of
// [Hook].
type UnimplementedHook struct{}

var _ Hook = UnimplementedHook{}

// OnRolloutStart does nothing.
func (UnimplementedHook) OnRolloutStart(context.Context, Task) error { return nil }

// OnTraceStart does nothing.
func (UnimplementedHook) OnTraceStart(context.Context, Task) error { return nil }

// OnTraceEnd does nothing.
func (UnimplementedHook) OnTraceEnd(context.Context, Task) error { return nil }

// OnRolloutEnd does nothing.
func (UnimplementedHook) OnRolloutEnd(context.Context, Task, []Span) error { return nil }
