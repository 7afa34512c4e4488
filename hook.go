package agl

import "context"

// Hook watches attempts. A runner calls its hooks in order; an error is logged
// and never fails an attempt.
type Hook interface {
	// OnRolloutStart runs before tracing starts.
	OnRolloutStart(ctx context.Context, task Task) error
	// OnTraceStart runs inside the trace, before the agent.
	OnTraceStart(ctx context.Context, task Task) error
	// OnTraceEnd runs inside the trace, after the agent.
	OnTraceEnd(ctx context.Context, task Task) error
	// OnRolloutEnd runs after the trace with every span of the attempt, before
	// the attempt is reported: a reward that it emits still counts.
	OnRolloutEnd(ctx context.Context, task Task, spans []Span) error
}

// UnimplementedHook does nothing. Embed it to implement some of [Hook].
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
