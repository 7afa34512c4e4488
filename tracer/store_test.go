package tracer_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// spanStore keeps spans as a store does. before and after, if set, may fail a
// write before or after it took effect.
type spanStore struct {
	before, after func(call int, spans []agl.Span) error
	reserve       func(ctx context.Context) error // if set, may fail a reservation
	cancelled     []string

	mu    sync.Mutex
	calls int
	seq   map[string]int64
	spans []agl.Span
}

func (s *spanStore) AddSpans(_ context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	s.mu.Lock()
	s.calls++
	call := s.calls
	s.mu.Unlock()
	if s.before != nil {
		if err := s.before(call, p.Spans); err != nil {
			return agl.AddSpansResult{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var stored []agl.Span
	for _, span := range p.Spans {
		if slices.ContainsFunc(s.spans, func(o agl.Span) bool { return o.AttemptID == span.AttemptID && o.SpanID == span.SpanID }) {
			continue
		}
		if s.seq == nil {
			s.seq = map[string]int64{}
		}
		if span.SequenceID <= 0 && p.IssueSequenceIDs {
			span.SequenceID = s.seq[span.RolloutID] + 1
		}
		s.seq[span.RolloutID] = max(s.seq[span.RolloutID], span.SequenceID)
		s.spans = append(s.spans, span)
		stored = append(stored, span)
	}
	if s.after != nil {
		if err := s.after(call, p.Spans); err != nil {
			return agl.AddSpansResult{}, err
		}
	}
	return agl.AddSpansResult{Stored: stored, Cancelled: s.cancelled}, nil
}

func (s *spanStore) ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (int64, error) {
	if s.reserve != nil {
		if err := s.reserve(ctx); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seq == nil {
		s.seq = map[string]int64{}
	}
	first := s.seq[p.RolloutID] + 1
	s.seq[p.RolloutID] += int64(p.Count)
	return first, nil
}

func (s *spanStore) QuerySpans(_ context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var page agl.Page[agl.Span]
	for _, span := range s.spans {
		if span.RolloutID == p.RolloutID && span.AttemptID == p.AttemptID {
			page.Items = append(page.Items, span)
		}
	}
	page.Total = len(page.Items)
	return page, nil
}

func (s *spanStore) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, span := range s.spans {
		names = append(names, span.Name)
	}
	return names
}

func newTracer(t *testing.T, cfg tracer.Config) *tracer.Tracer {
	t.Helper()
	tr, err := tracer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// start begins a trace of attempt at-1 of rollout ro-1.
func start(t *testing.T, tr *tracer.Tracer) (context.Context, agl.Trace) {
	t.Helper()
	ctx, trace, err := tr.Start(t.Context(), agl.TraceParams{RolloutID: "ro-1", AttemptID: "at-1", Name: "ro-1"})
	if err != nil {
		t.Fatal(err)
	}
	return ctx, trace
}

func end(t *testing.T, trace agl.Trace) []agl.Span {
	t.Helper()
	spans, err := trace.End(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatalf("end of the trace: %v", err)
	}
	return spans
}

func names(spans []agl.Span) []string {
	var out []string
	for _, s := range spans {
		out = append(out, s.Name)
	}
	return out
}

func span(name string) agl.Span {
	now := agl.TimestampOf(time.Now())
	return agl.Span{Name: name, StartTime: agl.Some(now), EndTime: agl.Some(now)}
}
