package tracer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/tracer"
)

// Many attempts trace at once in one process; no span may stray.
func TestConcurrentTraces(t *testing.T) {
	t.Parallel()
	store := &spanStore{}
	tr := newTracer(t, tracer.Config{Store: store, MaxBatchSpans: 7})
	const attempts, rounds = 64, 20
	var wg sync.WaitGroup
	for n := range attempts {
		wg.Go(func() {
			attempt := fmt.Sprintf("at-%d", n)
			ctx, open, err := tr.Start(t.Context(), agl.TraceParams{RolloutID: fmt.Sprintf("ro-%d", n), AttemptID: attempt})
			if err != nil {
				t.Error(err)
				return
			}
			for round := range rounds {
				outer, parent := tracer.Start(ctx, "outer", attribute.Int("round", round))
				_, child := tr.TracerProvider().Tracer("theirs").Start(outer, "inner", trace.WithAttributes(attribute.String("attempt", attempt)))
				child.End()
				parent.End()
			}
			if _, err := tracer.EmitReward(ctx, float64(n)); err != nil {
				t.Error(err)
			}
			spans, err := open.End(t.Context())
			if err != nil {
				t.Error(err)
			}
			checkTrace(t, spans, attempt, 2*rounds+2)
		})
	}
	wg.Wait()
	if got, want := len(store.spans), attempts*(2*rounds+2); got != want {
		t.Errorf("the store has %d spans, want %d", got, want)
	}
}

// A trace that starts in the context of an ended one of the same attempt goes on
// under its root.
func TestTraceContinues(t *testing.T) {
	t.Parallel()
	for name, empty := range map[string]bool{"below a stored root": false, "after an empty trace": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &spanStore{}
			tr := newTracer(t, tracer.Config{Store: store})
			params := agl.TraceParams{RolloutID: "ro-1", AttemptID: "at-1", Name: "root"}
			ctx, first, err := tr.Start(t.Context(), params)
			if err != nil {
				t.Fatal(err)
			}
			if !empty {
				if _, err := tracer.EmitMessage(ctx, "first"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := first.End(ctx); err != nil {
				t.Fatal(err)
			}
			ctx, second, err := tr.Start(ctx, params)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tracer.EmitMessage(ctx, "second"); err != nil {
				t.Fatal(err)
			}
			_, span := tracer.Start(ctx, "third")
			span.End()
			if _, err := second.End(ctx); err != nil {
				t.Fatal(err)
			}
			var root agl.Span
			for _, s := range store.spans {
				if s.Name == "root" && root.Name != "" {
					t.Error("there are two roots")
				}
				if s.Name == "root" {
					root = s
				}
			}
			for _, s := range store.spans {
				if s.TraceID != root.TraceID || s.Name != "root" && s.ParentID.V != root.SpanID {
					t.Errorf("%s is below %q in trace %q, want it below %q in %q", s.Name, s.ParentID.V, s.TraceID, root.SpanID, root.TraceID)
				}
			}
		})
	}
}

// checkTrace checks that the spans are one attempt's, complete, in order, and
// one tree.
func checkTrace(t *testing.T, spans []agl.Span, attempt string, want int) {
	t.Helper()
	if len(spans) != want {
		t.Errorf("%s has %d spans, want %d", attempt, len(spans), want)
		return
	}
	root := spans[len(spans)-1]
	if root.ParentID.Valid {
		t.Errorf("the last span of %s is %s, which is not the root", attempt, root.Name)
	}
	byID := map[string]agl.Span{}
	for _, s := range spans {
		byID[s.SpanID] = s
	}
	for i, s := range spans {
		if s.AttemptID != attempt || s.SequenceID != int64(i+1) || s.TraceID != root.TraceID {
			t.Errorf("span %d of %s is %s of %s with sequence id %d in trace %s", i, attempt, s.Name, s.AttemptID, s.SequenceID, s.TraceID)
		}
		if got, _ := s.Resource.Attributes.GetString(agl.AttrAttemptID); got != attempt {
			t.Errorf("resource of %s names attempt %q", s.Name, got)
		}
		if s.Name == "inner" {
			if got, _ := s.Attributes.GetString("attempt"); got != attempt {
				t.Errorf("a span of %s has strayed to %s", got, attempt)
			}
			if parent := byID[s.ParentID.V]; parent.Name != "outer" {
				t.Errorf("parent of inner is %q", parent.Name)
			}
		}
	}
}

func TestRootAboveNothingIsNotStored(t *testing.T) {
	t.Parallel()
	store := &spanStore{}
	_, open := start(t, newTracer(t, tracer.Config{Store: store}))
	if spans := end(t, open); len(spans) != 0 || store.calls != 0 {
		t.Errorf("an empty trace stored %v in %d calls", names(spans), store.calls)
	}
}

func TestSpanConversion(t *testing.T) {
	t.Parallel()
	store := &spanStore{}
	ctx, open := start(t, newTracer(t, tracer.Config{Store: store}))
	begin := time.Unix(1760706315, 500_000_000)
	_, other := tracer.Start(ctx, "other")
	_, s := tracer.Provider(ctx).Tracer("x").Start(ctx, "full", trace.WithTimestamp(begin), trace.WithLinks(trace.LinkFromContext(trace.ContextWithSpan(ctx, other))))
	s.SetAttributes(
		attribute.String("s", "é\"\n"), attribute.Bool("b", true), attribute.Int64("i", 1<<62), attribute.Float64("f", 1),
		attribute.Float64("nan", nan()), attribute.Int64Slice("ids", []int64{1, 2}), attribute.StringSlice("ss", []string{"a"}),
		attribute.Float64Slice("fs", []float64{0.5, 2}), attribute.BoolSlice("bs", []bool{true, false}),
		attribute.ByteSlice("bytes", []byte{0, 255}), attribute.Slice("mixed", attribute.IntValue(1), attribute.StringValue("x")),
		attribute.Map("map", attribute.Map("in", attribute.Bool("deep", true))),
	)
	s.AddEvent("ev", trace.WithTimestamp(begin.Add(time.Second)), trace.WithAttributes(attribute.String("k", "v")))
	s.SetStatus(codes.Error, "why")
	s.End(trace.WithTimestamp(begin.Add(2 * time.Second)))
	other.End()
	spans := end(t, open)

	got := spans[0]
	want := `{"s":"é\"\n","b":true,"i":4611686018427387904,"f":1.0,"nan":"NaN","ids":[1,2],"ss":["a"],"fs":[0.5,2.0],"bs":[true,false],"bytes":"00ff","mixed.0":1,"mixed.1":"x","map.in.deep":true}`
	if string(got.Attributes) != want {
		t.Errorf("attributes\n got %s\nwant %s", got.Attributes, want)
	}
	if got.StartTime.V != 1760706315.5 || got.EndTime.V != 1760706317.5 {
		t.Errorf("times are %v and %v", got.StartTime.V, got.EndTime.V)
	}
	if got.Status.Code != agl.StatusError || got.Status.Description.V != "why" {
		t.Errorf("status is %+v", got.Status)
	}
	wantEvent := agl.SpanEvent{Name: "ev", Attributes: agl.Attributes(`{"k":"v"}`), Timestamp: agl.Some(agl.Timestamp(1760706316.5))}
	if diff := cmp.Diff([]agl.SpanEvent{wantEvent}, got.Events); diff != "" {
		t.Errorf("events: %s", diff)
	}
	if len(got.Links) != 1 || got.Links[0].Context.SpanID != spans[1].SpanID || got.Links[0].Attributes != nil {
		t.Errorf("links are %+v", got.Links)
	}
	if !got.ParentID.Valid || got.Parent.SpanID != got.ParentID.V || got.Parent.TraceID != got.TraceID {
		t.Errorf("parent is %v, %+v", got.ParentID, got.Parent)
	}
	var back agl.Span
	if err := rawjson.Unmarshal(got.AppendJSON(nil), &back); err != nil {
		t.Errorf("the wire form does not read back: %v", err)
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

func TestAttributesAreNotCut(t *testing.T) {
	t.Parallel()
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	_, s := tracer.Start(ctx, "long chat")
	const n = 1000 // the SDK's default limit is 128
	for i := range n {
		s.SetAttributes(attribute.Int(fmt.Sprintf("k%d", i), i))
	}
	s.End()
	count := 0
	for range end(t, open)[0].Attributes.All() {
		count++
	}
	if count != n {
		t.Errorf("%d of %d attributes survive", count, n)
	}
}

// An agent that is itself called under a foreign trace keeps the link.
func TestRemoteLink(t *testing.T) {
	t.Parallel()
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	state, err := trace.ParseTraceState("b=2,a=1")
	if err != nil {
		t.Fatal(err)
	}
	remote := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, Remote: true, TraceState: state})
	_, s := tracer.Provider(ctx).Tracer("x").Start(ctx, "linked",
		trace.WithLinks(trace.Link{SpanContext: remote, Attributes: []attribute.KeyValue{attribute.String("k", "v")}}))
	s.End()
	got := end(t, open)[0].Links
	want := []agl.SpanLink{{
		Context: agl.SpanContext{
			TraceID: "01000000000000000000000000000000", SpanID: "0200000000000000", IsRemote: true,
			TraceState: []byte(`{"b":"2","a":"1"}`),
		},
		Attributes: agl.Attributes(`{"k":"v"}`),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("links (-want +got): %s", diff)
	}
}

// A context made anew from a span context still leads to the right attempt.
func TestSpanFollowsItsTraceID(t *testing.T) {
	t.Parallel()
	tr := newTracer(t, tracer.Config{Store: &spanStore{}})
	ctx, open := start(t, tr)
	bare := trace.ContextWithSpanContext(t.Context(), trace.SpanContextFromContext(ctx))
	_, s := tr.TracerProvider().Tracer("x").Start(bare, "found")
	s.End()
	_, stray := tr.TracerProvider().Tracer("x").Start(t.Context(), "of nobody")
	stray.End()
	if got := names(end(t, open)); !slices.Equal(got, []string{"found", "ro-1"}) {
		t.Errorf("stored %v", got)
	}
}

func TestLateSpansAreDropped(t *testing.T) {
	t.Parallel()
	store := &spanStore{}
	ctx, open := start(t, newTracer(t, tracer.Config{Store: store}))
	_, early := tracer.Start(ctx, "early")
	_, late := tracer.Start(ctx, "late")
	early.End()
	end(t, open)
	late.End()
	_, after := tracer.Start(ctx, "after")
	after.End()
	if _, err := tracer.EmitReward(ctx, 1); !errors.Is(err, agl.ErrIllegalState) {
		t.Errorf("a reward after the end of the trace gives %v", err)
	}
	if err := open.Add(t.Context(), span("x")); !errors.Is(err, agl.ErrIllegalState) {
		t.Errorf("Add after the end gives %v", err)
	}
	if _, err := open.End(t.Context()); !errors.Is(err, agl.ErrIllegalState) {
		t.Errorf("a second End gives %v", err)
	}
	if got := store.names(); !slices.Equal(got, []string{"early", "ro-1"}) {
		t.Errorf("stored %v", got)
	}
}

func TestAddChecksSpans(t *testing.T) {
	t.Parallel()
	store := &spanStore{}
	ctx, open := start(t, newTracer(t, tracer.Config{Store: store}))
	for want, bad := range map[string]agl.Span{
		`rollout_id: got "ro-2", must be "ro-1"`: {RolloutID: "ro-2", Name: "x"},
		`attempt_id: got "at-2", must be "at-1"`: {AttemptID: "at-2", Name: "x"},
		`name: empty`:                            {},
		`end_time: got 1, which is before`:       {Name: "x", StartTime: agl.Some[agl.Timestamp](2), EndTime: agl.Some[agl.Timestamp](1)},
	} {
		err := open.Add(ctx, span("good"), bad)
		if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "span 2 of 2:") {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
	numbered := span("numbered")
	numbered.SequenceID = 40
	if err := open.Add(ctx, numbered, span("next")); err != nil {
		t.Fatal(err)
	}
	spans := end(t, open)
	if got := names(spans); !slices.Equal(got, []string{"numbered", "next", "ro-1"}) {
		t.Fatalf("stored %v: a call with a bad span must add none", got)
	}
	if spans[0].SequenceID != 40 || spans[1].SequenceID != 41 || len(spans[0].SpanID) != 16 {
		t.Errorf("ids are %d %d %q", spans[0].SequenceID, spans[1].SequenceID, spans[0].SpanID)
	}
}

func TestSpansStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spanStore{}
		ctx, open := start(t, newTracer(t, tracer.Config{Store: store, MaxBatchDelay: time.Second, MaxBatchSpans: 3}))
		if err := open.Add(ctx, span("a"), span("b")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if got := store.names(); len(got) != 0 {
			t.Fatalf("stored %v before the delay", got)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := store.names(); len(got) != 2 || store.calls != 1 {
			t.Fatalf("stored %v in %d calls after the delay, want a and b in one", got, store.calls)
		}
		if err := open.Add(ctx, span("c"), span("d"), span("e"), span("f")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := store.names(); len(got) != 5 {
			t.Fatalf("stored %v: a full batch must not wait", got)
		}
		if err := open.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if got := store.names(); len(got) != 6 {
			t.Fatalf("stored %v after Flush", got)
		}
		end(t, open)
	})
}

// A full queue makes the agent wait; nothing is dropped.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		store := &spanStore{before: func(int, []agl.Span) error { <-gate; return nil }}
		ctx, open := start(t, newTracer(t, tracer.Config{Store: store, MaxQueueSpans: 4, MaxBatchSpans: 2}))
		ended := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 20 {
				_, s := tracer.Start(ctx, "s")
				s.End()
				ended++
			}
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if ended != 4 {
			t.Errorf("%d spans ended while the store hangs, want the 4 that the queue holds", ended)
		}
		waiting, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := open.Add(waiting, span("impatient")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Add gives %v, want that the time is up", err)
		}
		close(gate)
		<-done
		if spans := end(t, open); len(spans) != 21 {
			t.Errorf("%d spans are stored, want 21", len(spans))
		}
	})
}

func TestRetries(t *testing.T) {
	t.Parallel()
	away := agl.Errorf(agl.CodeUnavailable, "away")
	for _, tc := range []struct {
		name   string
		store  *spanStore
		budget time.Duration
		stored int
		lost   string
	}{
		{"away for a while", &spanStore{before: func(call int, _ []agl.Span) error {
			return errorUntil(call, 5, away)
		}}, 0, 4, ""},
		{"answer lost", &spanStore{after: func(call int, _ []agl.Span) error {
			return errorUntil(call, 1, away)
		}}, 0, 4, ""},
		{"away for good", &spanStore{before: func(int, []agl.Span) error { return away }}, time.Second, 0, `4 of 4 spans of attempt "at-1" were not stored: away`},
		{"one bad span", &spanStore{before: func(_ int, spans []agl.Span) error {
			for _, s := range spans {
				if s.Name == "b" {
					return agl.Errorf(agl.CodeInvalid, "bad b")
				}
			}
			return nil
		}}, 0, 3, `1 of 4 spans of attempt "at-1" were not stored: bad b`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, open := start(t, newTracer(t, tracer.Config{Store: tc.store, RetryTimeout: tc.budget}))
				if err := open.Add(ctx, span("a"), span("b"), span("c")); err != nil {
					t.Fatal(err)
				}
				spans, err := open.End(t.Context())
				if (err == nil) != (tc.lost == "") || err != nil && err.Error() != tc.lost {
					t.Errorf("error is %v, want %q", err, tc.lost)
				}
				if len(spans) != tc.stored || len(tc.store.spans) != tc.stored {
					t.Errorf("End gives %v, the store has %v; want %d spans", names(spans), tc.store.names(), tc.stored)
				}
				for i, s := range spans {
					if s.SequenceID != int64(i+1) {
						t.Errorf("span %d has sequence id %d", i+1, s.SequenceID)
					}
				}
			})
		})
	}
}

func errorUntil(call, last int, err error) error {
	if call <= last {
		return err
	}
	return nil
}

func TestEndDoesNotOutliveItsContext(t *testing.T) {
	t.Parallel()
	for name, room := range map[string]int{"room for the root": 2, "no room": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &spanStore{before: func(int, []agl.Span) error { return agl.Errorf(agl.CodeUnavailable, "away") }}
				ctx, open := start(t, newTracer(t, tracer.Config{Store: store, MaxQueueSpans: room}))
				if err := open.Add(ctx, span("a")); err != nil {
					t.Fatal(err)
				}
				limited, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begin := time.Now()
				if _, err := open.End(limited); err == nil {
					t.Error("End says nothing of the lost span")
				}
				if took := time.Since(begin); took != time.Second {
					t.Errorf("End took %s", took)
				}
			})
		})
	}
}

func TestCancellation(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		store *spanStore
	}{
		{"told by a span", &spanStore{cancelled: []string{"at-0", "at-1"}}},
		{"deleted", &spanStore{before: func(int, []agl.Span) error { return agl.Errorf(agl.CodeNotFound, "Rollout ro-1 not found") }}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			told := 0
			ctx, open, err := newTracer(t, tracer.Config{Store: tc.store}).Start(t.Context(),
				agl.TraceParams{RolloutID: "ro-1", AttemptID: "at-1", OnCancelled: func() { told++ }})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := open.Add(ctx, span("a")); err != nil {
					t.Fatal(err)
				}
				open.Flush(ctx)
			}
			open.End(ctx)
			if told != 1 {
				t.Errorf("told %d times", told)
			}
		})
	}
}

func TestConfigRejects(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]tracer.Config{
		"Config.Store: got nil":       {},
		"Config.MaxBatchSpans: got -": {Store: &spanStore{}, MaxBatchSpans: -1},
	} {
		if _, err := tracer.New(cfg); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
	if _, _, err := newTracer(t, tracer.Config{Store: &spanStore{}}).Start(t.Context(), agl.TraceParams{RolloutID: "ro-1"}); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("a trace of no attempt gives %v", err)
	}
}
