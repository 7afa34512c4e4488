package agl

import "context"

// Tracer records what happens inside an attempt. The trace travels in the context,
// so any number of attempts can be traced at once in one process.
type Tracer interface {
	// Start begins the trace of an attempt and returns a context that carries it. When ctx carries a trace of the same
	// attempt that has ended, the new one continues it.
	Start(ctx context.Context, p TraceParams) (context.Context, Trace, error)
}

// TraceParams are the arguments of Tracer.Start.
type TraceParams struct {
	RolloutID string
	AttemptID string
	Name      string // of the trace; the runner uses the rollout id
	// OnCancelled, if not nil, is called at most once: when the store answers to spans that their attempt was
	// cancelled.
	OnCancelled func()
}

// Trace is the open trace of one attempt.
type Trace interface {
	// Add records finished spans as they are. Empty rollout and attempt ids become
	// the trace's; the store issues a sequence id where there is no positive one.
	Add(ctx context.Context, spans ...Span) error
	// Flush returns when all spans that have ended so far are stored.
	Flush(ctx context.Context) error
	// End flushes, closes the trace, and returns its spans by sequence id. Spans that end later are dropped, and the log
	// counts them. An error means that spans could not be stored.
	End(ctx context.Context) ([]Span, error)
}
