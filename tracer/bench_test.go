package tracer_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
)

// discard is a store that numbers spans and forgets them.
type discard struct{}

func (discard) AddSpans(_ context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	return agl.AddSpansResult{Stored: p.Spans}, nil
}

func (discard) ReserveSequenceIDs(context.Context, agl.ReserveSequenceIDsParams) (int64, error) {
	return 1, nil
}

func (discard) QuerySpans(context.Context, agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	return agl.Page[agl.Span]{}, nil
}

// BenchmarkAttempt traces an attempt of eight spans and a reward.
func BenchmarkAttempt(b *testing.B) {
	tr, err := tracer.New(tracer.Config{Store: discard{}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		ctx, trace, err := tr.Start(b.Context(), agl.TraceParams{RolloutID: "ro-1", AttemptID: "at-1"})
		if err != nil {
			b.Fatal(err)
		}
		for i := range 8 {
			_, span := tracer.Start(ctx, "step", attribute.Int("i", i), attribute.String("text", "some text"))
			span.End()
		}
		if _, err := tracer.EmitReward(ctx, 1); err != nil {
			b.Fatal(err)
		}
		if _, err := trace.End(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
