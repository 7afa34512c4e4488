package tracer

import (
	"context"
	"maps"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

type spanKey struct {
	trace trace.TraceID
	span  trace.SpanID
}

func keyOf(sc trace.SpanContext) spanKey { return spanKey{sc.TraceID(), sc.SpanID()} }

// processor passes ended OpenTelemetry spans to the trace that they belong to: the one in the context in which the
// span was started, or else the one with the span's trace id (if the context was created anew from a span context).
//
// The SDK passes the context only at the start of a span, so open spans are
// remembered until they end.
type processor struct {
	core *core // of the tracer whose traces it serves; nil serves those of all

	mu     sync.Mutex
	open   map[spanKey]*Trace
	counts map[*Trace]int // of open spans
	traces map[trace.TraceID]*Trace
}

var _ sdktrace.SpanProcessor = (*processor)(nil)

func newProcessor(c *core) *processor {
	return &processor{core: c, open: map[spanKey]*Trace{}, counts: map[*Trace]int{}, traces: map[trace.TraceID]*Trace{}}
}

func (p *processor) register(t *Trace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traces[t.traceID] = t
}

// OnStart remembers which trace the span belongs to.
func (p *processor) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) {
	t, traced := FromContext(ctx)
	if traced && p.core != nil && t.core != p.core {
		return
	}
	sc := s.SpanContext()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !traced {
		if t = p.traces[sc.TraceID()]; t == nil {
			t = p.open[keyOf(s.Parent())]
		}
	}
	if t == nil {
		return
	}
	if t.ended.Load() {
		t.logger.Warn("span started after its trace ended; it is dropped", "span", s.Name())
		return
	}
	p.open[keyOf(sc)] = t
	if p.counts[t]++; p.counts[t] == 1 {
		t.watchedBy(p)
	}
}

// OnEnd passes the span to its trace.
func (p *processor) OnEnd(s sdktrace.ReadOnlySpan) {
	key := keyOf(s.SpanContext())
	p.mu.Lock()
	t := p.open[key]
	if t != nil {
		delete(p.open, key)
		p.counts[t]--
	}
	p.mu.Unlock()
	if t != nil {
		t.spanEnded(s)
	}
}

// forget drops the trace and returns how many of its spans have not ended.
func (p *processor) forget(t *Trace) (unfinished int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.traces, t.traceID)
	unfinished = p.counts[t]
	delete(p.counts, t)
	if unfinished > 0 {
		maps.DeleteFunc(p.open, func(_ spanKey, owner *Trace) bool { return owner == t })
	}
	return unfinished
}

// NewSpanProcessor returns a span processor for an existing OpenTelemetry provider, beside its other processors. A
// span that is started with the context of an attempt, or below such a span, is recorded in the attempt's trace,
// whichever [Tracer] that belongs to. Other spans are ignored. The provider's sampler and limits decide what there is
// to record.
func NewSpanProcessor() sdktrace.SpanProcessor { return newProcessor(nil) }

// Shutdown does nothing: whoever started a trace ends it.
func (p *processor) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing: see Trace.Flush.
func (p *processor) ForceFlush(context.Context) error { return nil }
