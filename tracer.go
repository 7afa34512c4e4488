package agl

import "context"

// Tracer records what happens inside an attempt. Tracing is per context: any
// number of attempts trace at once in one process.
type Tracer interface {
	// Start begins the trace of an attempt and returns a context that carries it.
	// When ctx carries a trace of the same attempt that has ended, the new one
	// continues it.
	Start(ctx context.Context, p TraceParams) (context.Context, Trace, error)
}

// TraceParams are the arguments of Tracer.Start.
type TraceParams struct {
	RolloutID string
	AttemptID string
	Name      string // of the trace; the runner gives the rollout id
	// OnCancelled, if not nil, is called at most once, when the store answers a
	// span with the word that its attempt was cancelled.
	OnCancelled func()
}

// Trace is the open trace of one attempt.
type Trace interface {
	// Add records finished spans as they are. Empty rollout and attempt ids become
	// the trace's; a sequence id that is not positive is issued.
	Add(ctx context.Context, spans ...Span) error
	// Flush returns when every span that has ended so far is stored.
	Flush(ctx context.Context) error
	// End closes the trace: it flushes and returns the spans of the trace in the
	// order of their sequence ids. Spans that end later are dropped and counted
	// in the log. An error says that spans could not be stored.
	End(ctx context.Context) ([]Span, error)
}
