package tracer

import (
	"context"
	"log/slog"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

type spanKey struct {
	trace trace.TraceID
	span  trace.SpanID
}

func keyOf(sc trace.SpanContext) spanKey { return spanKey{sc.TraceID(), sc.SpanID()} }

// processor hands ended OpenTelemetry spans to the trace that they belong to:
// the one in the context that the span was started with, else the one whose
// trace id the span carries on (a context made anew from a span context).
//
// The SDK tells the context only at the start of a span, so open spans are
// remembered until they end.
type processor struct {
	logger *slog.Logger

	mu     sync.Mutex
	open   map[spanKey]*Trace
	traces map[trace.TraceID]*Trace
}

var _ sdktrace.SpanProcessor = (*processor)(nil)

func newProcessor(logger *slog.Logger) *processor {
	return &processor{logger: logger, open: map[spanKey]*Trace{}, traces: map[trace.TraceID]*Trace{}}
}

func (p *processor) register(id trace.TraceID, t *Trace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traces[id] = t
}

// OnStart remembers which trace the span belongs to.
func (p *processor) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) {
	t, ok := FromContext(ctx)
	sc := s.SpanContext()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ok {
		t = p.traces[sc.TraceID()]
	}
	if t == nil || t.tracer.processor != p {
		return
	}
	if t.ended.Load() {
		p.logger.Warn("span started after its trace ended; it is dropped",
			"rollout_id", t.rolloutID, "attempt_id", t.attemptID, "span", s.Name())
		return
	}
	p.open[keyOf(sc)] = t
	t.openSpans++
}

// OnEnd queues the span for the store.
func (p *processor) OnEnd(s sdktrace.ReadOnlySpan) {
	key := keyOf(s.SpanContext())
	p.mu.Lock()
	t := p.open[key]
	if t != nil {
		delete(p.open, key)
		t.openSpans--
	}
	p.mu.Unlock()
	if t != nil {
		t.spanEnded(s)
	}
}

// forget drops the trace and returns how many of its spans never ended.
func (p *processor) forget(t *Trace) (unfinished int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.traces, t.traceID)
	unfinished = t.openSpans
	if unfinished == 0 {
		return 0
	}
	for key, owner := range p.open {
		if owner == t {
			delete(p.open, key)
		}
	}
	t.openSpans = 0
	return unfinished
}

// Shutdown does nothing: traces are ended by those who started them.
func (p *processor) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing: see Trace.Flush.
func (p *processor) ForceFlush(context.Context) error { return nil }
