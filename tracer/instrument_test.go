package tracer_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
)

// unaware is an agent without a line for agl: it calls its model with the default client, and records spans with the
// global provider.
func unaware(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	ctx, span := otel.Tracer("agent").Start(ctx, "work")
	defer span.End()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
}

// It changes globals, so it does not run beside other tests.
//
//nolint:paralleltest
func TestInstrument(t *testing.T) {
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write([]byte(`{"id":"c1","choices":[{"message":{"role":"assistant","content":"hi"}}]}`)); err != nil {
			t.Error(err)
		}
	}))
	defer model.Close()
	transport, provider := http.DefaultTransport, otel.GetTracerProvider()
	defer http.DefaultClient.CloseIdleConnections()
	early := otel.Tracer("got before Instrument")

	attempt := func() []string {
		ctx, trace := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
		unaware(ctx, t, model.URL)
		_, span := early.Start(ctx, "early")
		span.End()
		unaware(context.WithoutCancel(t.Context()), t, model.URL) // of no attempt
		return names(end(t, trace))
	}
	recorded := []string{agl.SpanChatCompletion, "work", "early", "ro-1"}
	for range 2 { // it can be done again
		undo := tracer.Instrument()
		if got := attempt(); !slices.Equal(got, recorded) {
			t.Errorf("recorded %q, want %q", got, recorded)
		}
		undo()
		undo()
		if http.DefaultTransport != transport || otel.GetTracerProvider() != provider {
			t.Error("undo does not restore what was there")
		}
		if got := attempt(); len(got) != 0 {
			t.Errorf("after undo %q are recorded", got)
		}
	}

	// A provider of the program itself keeps its exporter.
	exporter := tracetest.NewInMemoryExporter()
	own := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	otel.SetTracerProvider(own)
	defer otel.SetTracerProvider(provider)
	undo := tracer.Instrument()
	if got := attempt(); !slices.Contains(got, "work") || !slices.Contains(got, agl.SpanChatCompletion) {
		t.Errorf("beside a provider %q are recorded", got)
	}
	undo()
	if got := attempt(); len(got) != 0 {
		t.Errorf("after undo %q are recorded", got)
	}
	if got := len(exporter.GetSpans()); got != 4 {
		t.Errorf("the program's own exporter got %d spans, want 4", got)
	}
}

// A processor beside others records what belongs to an attempt, in its trace, and remembers nothing of it afterwards.
func TestNewSpanProcessor(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithSpanProcessor(tracer.NewSpanProcessor()))
	theirs := provider.Tracer("theirs")
	ctx, attempt := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	outer, parent := theirs.Start(ctx, "outer")
	// The values of the context are lost, but not the parent.
	_, child := theirs.Start(trace.ContextWithSpanContext(t.Context(), trace.SpanContextFromContext(outer)), "inner")
	child.SetAttributes(attribute.Int("n", 7))
	child.End()
	parent.End()
	_, open := theirs.Start(ctx, "open")
	_, alone := theirs.Start(t.Context(), "of no attempt")
	alone.End()
	spans := end(t, attempt)
	open.End()
	if got, want := names(spans), []string{"inner", "outer", "ro-1"}; !slices.Equal(got, want) {
		t.Fatalf("recorded %q, want %q", got, want)
	}
	root := spans[2]
	if spans[1].ParentID.V != root.SpanID || spans[0].ParentID.V != spans[1].SpanID || spans[0].TraceID != root.TraceID {
		t.Errorf("the spans are not in the attempt's trace: %+v", spans)
	}
	if n, _ := spans[0].Attributes.GetInt("n"); n != 7 || spans[0].AttemptID != "at-1" {
		t.Errorf("the inner span is %+v", spans[0])
	}
	if got := len(exporter.GetSpans()); got != 4 {
		t.Errorf("the exporter beside it got %d spans, want 4", got)
	}
}

// Spans of an exporter become spans of an attempt.
func TestFromOTel(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	_, span := provider.Tracer("theirs").Start(t.Context(), "before")
	span.SetAttributes(attribute.StringSlice("list", []string{"a", "b"}))
	span.End()
	ctx, trace := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	if err := trace.Add(ctx, tracer.FromOTel(recorder.Ended()[0])); err != nil {
		t.Fatal(err)
	}
	got := end(t, trace)[0]
	if got.Name != "before" || got.AttemptID != "at-1" || got.SpanID != span.SpanContext().SpanID().String() || string(got.Attributes) != `{"list":["a","b"]}` {
		t.Errorf("got %+v", got)
	}
}
