package tracer

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/agl-go/agl"
)

const scopeName = "github.com/agl-go/agl/tracer"

// Trace is the open trace of one attempt. It is safe for concurrent use.
type Trace struct {
	tracer    *Tracer
	rolloutID string
	attemptID string
	name      string
	resource  agl.SpanResource
	stream    *stream

	cancel  context.CancelFunc // of the stream
	root    trace.Span         // opened by this trace; nil when it continues another
	rootID  trace.SpanContext
	traceID trace.TraceID

	openSpans int                              // guarded by the processor's lock
	hasRoot   bool                             // the root span is stored; valid once ended is set
	ending    atomic.Bool                      // End was called
	ended     atomic.Bool                      // nothing more is taken
	failure   atomic.Pointer[agl.OutcomeError] // of the last model call
}

var _ agl.Trace = (*Trace)(nil)

func newTrace(t *Tracer, p agl.TraceParams) (*Trace, error) {
	attrs, err := agl.NewAttributes(
		agl.Attr{Key: agl.AttrRolloutID, Value: p.RolloutID},
		agl.Attr{Key: agl.AttrAttemptID, Value: p.AttemptID},
		agl.Attr{Key: agl.AttrTracerName, Value: t.cfg.Name},
	)
	if err != nil {
		return nil, err
	}
	return &Trace{
		tracer: t, rolloutID: p.RolloutID, attemptID: p.AttemptID, name: p.Name,
		resource: agl.SpanResource{Attributes: attrs},
		stream:   newStream(t.cfg, p.RolloutID, p.AttemptID, &onceFunc{f: p.OnCancelled}),
	}, nil
}

// begin starts the stream and opens the root span, unless ctx carries a trace of
// the same attempt that has ended: then the root of that one serves here, too.
func (t *Trace) begin(ctx context.Context) context.Context {
	// What is recorded must reach the store after the agent was cancelled, too.
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.cancel = cancel
	go t.stream.run(streamCtx)

	earlier, ok := FromContext(ctx)
	ctx = context.WithValue(ctx, traceKey{}, t)
	if ok && earlier.attemptID == t.attemptID && earlier.ended.Load() && earlier.hasRoot {
		t.rootID, t.hasRoot = earlier.rootID, true
		ctx = trace.ContextWithSpanContext(ctx, t.rootID)
	} else {
		ctx, t.root = t.tracer.provider.Tracer(scopeName).Start(ctx, t.name, trace.WithNewRoot()) //nolint:spancheck // ended by End
		t.rootID = t.root.SpanContext()
	}
	t.traceID = t.rootID.TraceID()
	t.tracer.processor.register(t.traceID, t)
	return ctx
}

// TraceID returns the trace id, in hex, that the attempt's own spans share.
func (t *Trace) TraceID() string { return t.traceID.String() }

// Add implements [agl.Trace]. An empty span id is made up, and so is an empty
// resource. A span of another rollout or attempt, or without a name, is
// rejected with agl.CodeInvalid, and none of the call is added.
func (t *Trace) Add(ctx context.Context, spans ...agl.Span) error {
	for i := range spans {
		if err := t.check(&spans[i]); err != nil {
			return agl.Errorf(agl.CodeInvalid, "span %d of %d: %w", i+1, len(spans), err)
		}
	}
	for i := range spans {
		if err := t.stream.add(ctx.Done(), t.completed(spans[i])); err != nil {
			return t.added(err)
		}
	}
	return nil
}

func (t *Trace) added(err error) error {
	if errors.Is(err, errStreamClosed) {
		return agl.Errorf(agl.CodeIllegalState, "trace of attempt %s: %w", t.attemptID, err)
	}
	return err
}

// check rejects a span that cannot be one of the attempt's.
func (t *Trace) check(s *agl.Span) error {
	for _, id := range []struct{ field, got, allowed string }{
		{"rollout_id", s.RolloutID, t.rolloutID},
		{"attempt_id", s.AttemptID, t.attemptID},
	} {
		if id.got != "" && id.got != id.allowed {
			return agl.Errorf(agl.CodeInvalid, "%s: got %q, must be %q or empty", id.field, id.got, id.allowed)
		}
	}
	if s.Name == "" {
		return agl.Errorf(agl.CodeInvalid, "name: is empty, a span needs one")
	}
	if s.EndTime.Valid && s.StartTime.Valid && s.EndTime.V < s.StartTime.V {
		return agl.Errorf(agl.CodeInvalid, "end_time: got %v, which is before start_time %v", s.EndTime.V, s.StartTime.V)
	}
	return nil
}

// completed fills in what the trace knows and the span lacks.
func (t *Trace) completed(s agl.Span) agl.Span {
	s.RolloutID, s.AttemptID = t.rolloutID, t.attemptID
	if s.SpanID == "" {
		s.SpanID = newID(8)
	}
	if s.TraceID == "" {
		s.TraceID = t.traceID.String()
	}
	if s.Context == nil {
		s.Context = &agl.SpanContext{TraceID: s.TraceID, SpanID: s.SpanID}
	}
	if s.Resource.Attributes == nil {
		s.Resource = t.resource
	}
	return s
}

// Flush implements [agl.Trace].
func (t *Trace) Flush(ctx context.Context) error { return t.stream.flush(ctx) }

// End implements [agl.Trace]. It waits for the store at most as long as ctx
// lasts; what is not stored by then is lost. Ending twice is an error.
func (t *Trace) End(ctx context.Context) ([]agl.Span, error) {
	if !t.ending.CompareAndSwap(false, true) {
		return nil, agl.Errorf(agl.CodeIllegalState, "trace of attempt %s: ended twice", t.attemptID)
	}
	if t.root != nil {
		// A root without children says nothing: ended first, the trace drops it.
		t.hasRoot = !t.stream.empty()
		t.ended.Store(!t.hasRoot)
		t.root.End()
	}
	t.ended.Store(true)
	if n := t.tracer.processor.forget(t); n > 0 {
		t.tracer.cfg.Logger.WarnContext(ctx, "spans that are still open when their trace ends are dropped",
			"rollout_id", t.rolloutID, "attempt_id", t.attemptID, "count", n)
	}
	t.stream.close()
	select {
	case <-t.stream.done:
	case <-ctx.Done():
		t.cancel()
		<-t.stream.done
	}
	t.cancel()
	return t.collect(ctx)
}

// collect returns the stored spans by sequence id.
func (t *Trace) collect(ctx context.Context) ([]agl.Span, error) {
	t.stream.mu.Lock()
	spans, unsure, err := t.stream.stored, t.stream.unsure, t.stream.lossError()
	t.stream.stored, t.stream.unsure = nil, nil
	t.stream.mu.Unlock()
	if len(unsure) > 0 {
		// The answer to their first write was lost, and their sequence ids with it.
		page, queryErr := t.tracer.cfg.Store.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: t.rolloutID, AttemptID: t.attemptID})
		if queryErr != nil {
			err = errors.Join(err, agl.Errorf(agl.ErrorCode(queryErr), "spans of attempt %s: %w", t.attemptID, queryErr))
		}
		for i := range page.Items {
			if _, ok := unsure[page.Items[i].SpanID]; ok {
				spans = append(spans, page.Items[i])
			}
		}
	}
	slices.SortStableFunc(spans, func(a, b agl.Span) int { return cmp.Compare(a.SequenceID, b.SequenceID) })
	return spans, err
}

// spanEnded takes an ended OpenTelemetry span.
func (t *Trace) spanEnded(s sdktrace.ReadOnlySpan) {
	if t.ended.Load() {
		return
	}
	// A queue that is full makes the caller wait; the stream settles each batch
	// within its retry budget, so the wait is bounded.
	if err := t.stream.add(nil, t.convert(s)); err != nil {
		t.tracer.cfg.Logger.Warn("span ended after its trace; it is dropped",
			"rollout_id", t.rolloutID, "attempt_id", t.attemptID, "span", s.Name())
	}
}

// draft completes d with the place in the trace that ctx stands at.
func (t *Trace) draft(ctx context.Context, d agl.SpanDraft) agl.Span {
	if d.TraceID == "" {
		d.TraceID = t.traceID.String()
		if d.ParentID == "" {
			d.ParentID = t.parentOf(ctx)
		}
	}
	span := fromDraft(d)
	span.RolloutID, span.AttemptID, span.Resource = t.rolloutID, t.attemptID, t.resource
	return span
}

// record queues a completed draft; a full queue makes the caller wait.
func (t *Trace) record(d agl.SpanDraft) error {
	span := fromDraft(d)
	span.RolloutID, span.AttemptID, span.Resource = t.rolloutID, t.attemptID, t.resource
	return t.added(t.stream.add(nil, span))
}

// parentOf returns the span that ctx stands in, or the root when that is none
// of this trace.
func (t *Trace) parentOf(ctx context.Context) string {
	if sc := trace.SpanContextFromContext(ctx); sc.TraceID() == t.traceID {
		return sc.SpanID().String()
	}
	return t.rootID.SpanID().String()
}

// SpanFromDraft makes the span that a draft describes: missing ids are made up,
// or are those of the trace and the current span in ctx; a zero start is now, a
// zero end is the start. Its rollout and attempt are ctx's, if ctx is traced.
func SpanFromDraft(ctx context.Context, d agl.SpanDraft) agl.Span {
	if t, ok := FromContext(ctx); ok {
		return t.draft(ctx, d)
	}
	return fromDraft(d)
}

func fromDraft(d agl.SpanDraft) agl.Span {
	if d.TraceID == "" {
		d.TraceID = newID(16)
	}
	if d.SpanID == "" {
		d.SpanID = newID(8)
	}
	if d.StartTime == 0 {
		d.StartTime = agl.TimestampOf(time.Now())
	}
	if d.EndTime == 0 {
		d.EndTime = d.StartTime
	}
	span := agl.Span{
		TraceID: d.TraceID, SpanID: d.SpanID, Name: d.Name,
		Status: d.Status, Attributes: d.Attributes, Events: d.Events,
		StartTime: agl.Some(d.StartTime), EndTime: agl.Some(d.EndTime),
		Context: &agl.SpanContext{TraceID: d.TraceID, SpanID: d.SpanID},
	}
	if d.ParentID != "" {
		span.ParentID = agl.Some(d.ParentID)
		span.Parent = &agl.SpanContext{TraceID: d.TraceID, SpanID: d.ParentID}
	}
	return span
}

// newID returns n ≤ 16 random bytes in hex.
func newID(n int) string {
	var b [16]byte
	rand.Read(b[:n])
	return hex.EncodeToString(b[:n])
}

func newSpanID() (id trace.SpanID) {
	rand.Read(id[:])
	return id
}
