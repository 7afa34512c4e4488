package tracer

import (
	"net/http"
	"sync"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// instrumentation is what Instrument has changed in this process.
//
//nolint:gochecknoglobals // it stands for globals of other packages
var instrumentation struct {
	mu sync.Mutex
	// own is used in programs that have set no provider. It is created once and kept: a tracer that a program
	// obtained before the first SetTracerProvider stays with the first provider.
	own *sdktrace.TracerProvider
}

// Instrument records agents that contain no tracing code: the model calls of HTTP clients that use
// [http.DefaultTransport], which becomes a [Transport], and the spans of the global OpenTelemetry provider, which
// gets the processor of [NewSpanProcessor]. A provider that is not the SDK's is replaced. Requests and spans whose
// context has no trace are not recorded.
//
// undo restores the previous values, unless they have been changed since, and may be called several times. Instrument
// and undo write variables of other packages: call them at the start and end of a program, while it makes no request
// and starts no span. Code that asserts the type of http.DefaultTransport must be given a Transport instead.
func Instrument() (undo func()) {
	before := http.DefaultTransport
	transport := &Transport{Base: before}
	http.DefaultTransport = transport
	undoSpans := instrumentSpans()
	return sync.OnceFunc(func() {
		undoSpans()
		if http.DefaultTransport == http.RoundTripper(transport) {
			http.DefaultTransport = before
		}
	})
}

func instrumentSpans() (undo func()) {
	instrumentation.mu.Lock()
	defer instrumentation.mu.Unlock()
	processor := NewSpanProcessor()
	before := otel.GetTracerProvider()
	if provider, ok := before.(*sdktrace.TracerProvider); ok {
		provider.RegisterSpanProcessor(processor)
		return func() { provider.UnregisterSpanProcessor(processor) }
	}
	if instrumentation.own == nil {
		instrumentation.own = newProvider()
	}
	own := instrumentation.own
	own.RegisterSpanProcessor(processor)
	otel.SetTracerProvider(own)
	return func() {
		own.UnregisterSpanProcessor(processor)
		if otel.GetTracerProvider() == trace.TracerProvider(own) {
			otel.SetTracerProvider(before)
		}
	}
}

// newProvider returns a provider that records spans in full: the SDK's limits (128 attributes a span) would truncate
// long chats.
func newProvider(processors ...sdktrace.SpanProcessor) *sdktrace.TracerProvider {
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{
			AttributeValueLengthLimit: -1, AttributeCountLimit: -1, EventCountLimit: -1,
			LinkCountLimit: -1, AttributePerEventCountLimit: -1, AttributePerLinkCountLimit: -1,
		}),
	}
	for _, p := range processors {
		options = append(options, sdktrace.WithSpanProcessor(p))
	}
	return sdktrace.NewTracerProvider(options...)
}
