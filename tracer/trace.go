package tracer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/randomid"
)

const scopeName = "github.com/agl-go/agl/tracer"

// core is what the traces of a tracer share.
type core struct {
	cfg       Config
	processor *processor
	provider  *sdktrace.TracerProvider
}

// Trace is the open trace of one attempt. It is safe for concurrent use.
type Trace struct {
	*core

	rolloutID string
	attemptID string
	name      string
	logger    *slog.Logger // names the attempt
	resource  agl.SpanResource
	queue     *spanQueue

	cancel  context.CancelFunc // of the queue's goroutine
	root    trace.Span         // opened by this trace; nil when it continues another
	rootID  trace.SpanContext
	traceID trace.TraceID

	watchMu  sync.Mutex
	watchers []*processor // others than the tracer's that have open spans of this trace

	hasRoot bool                             // the root span is stored; valid once ended is set
	ending  atomic.Bool                      // End was called
	ended   atomic.Bool                      // no more spans are accepted
	failure atomic.Pointer[agl.OutcomeError] // of the last model call
}

var _ agl.Trace = (*Trace)(nil)

func newTrace(c *core, p agl.TraceParams) (*Trace, error) {
	attrs, err := agl.NewAttributes(
		agl.Attr{Key: agl.AttrRolloutID, Value: p.RolloutID},
		agl.Attr{Key: agl.AttrAttemptID, Value: p.AttemptID},
		agl.Attr{Key: agl.AttrTracerName, Value: c.cfg.Name},
	)
	if err != nil {
		return nil, err
	}
	onCancelled := func() {}
	if p.OnCancelled != nil {
		onCancelled = sync.OnceFunc(p.OnCancelled)
	}
	return &Trace{
		core: c, rolloutID: p.RolloutID, attemptID: p.AttemptID, name: p.Name,
		logger:   c.cfg.Logger.With("rollout_id", p.RolloutID, "attempt_id", p.AttemptID),
		resource: agl.SpanResource{Attributes: attrs},
		queue:    newSpanQueue(c.cfg, p.RolloutID, p.AttemptID, onCancelled),
	}, nil
}

// begin starts the queue and opens the root span. If ctx carries a trace of the same attempt that has ended, the root
// of that trace is used instead.
func (t *Trace) begin(ctx context.Context) context.Context {
	// Spans must reach the store even after the agent was cancelled.
	queueCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.cancel = cancel
	go t.queue.run(queueCtx)

	earlier, ok := FromContext(ctx)
	ctx = context.WithValue(ctx, traceKey{}, t)
	if ok && earlier.attemptID == t.attemptID && earlier.ended.Load() && earlier.hasRoot {
		t.rootID, t.hasRoot = earlier.rootID, true
		ctx = trace.ContextWithSpanContext(ctx, t.rootID)
	} else {
		ctx, t.root = t.provider.Tracer(scopeName).Start(ctx, t.name, trace.WithNewRoot()) //nolint:spancheck // ended by End
		t.rootID = t.root.SpanContext()
	}
	t.traceID = t.rootID.TraceID()
	t.processor.register(t)
	return ctx
}

// TraceID returns the id of the trace in hex.
func (t *Trace) TraceID() string { return t.traceID.String() }

// Add implements [agl.Trace]. A span without an id gets a random one, and a span without a resource gets the trace's.
// If a span belongs to another rollout or attempt, or has no name, the error has code agl.CodeInvalid and no span is
// added.
func (t *Trace) Add(ctx context.Context, spans ...agl.Span) error {
	for i := range spans {
		if err := t.check(&spans[i]); err != nil {
			return agl.Errorf(agl.CodeInvalid, "span %d of %d: %w", i+1, len(spans), err)
		}
	}
	for i := range spans {
		if _, err := t.add(ctx, t.completed(spans[i])); err != nil {
			return err
		}
	}
	return nil
}

// add queues a span, and returns its place in the queue. It waits for room until ctx ends.
func (t *Trace) add(ctx context.Context, span agl.Span) (place int, err error) {
	place, err = t.queue.add(ctx.Done(), span)
	if errors.Is(err, context.Canceled) {
		err = ctx.Err() // or its deadline
	}
	return place, t.queueError(err)
}

// queueError names the attempt in the error of a queue that is closed.
func (t *Trace) queueError(err error) error {
	if errors.Is(err, errTraceEnded) {
		return agl.Errorf(agl.CodeIllegalState, "trace of attempt %q: %w", t.attemptID, err)
	}
	return err
}

// check rejects a span that cannot belong to the attempt.
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
		return agl.Errorf(agl.CodeInvalid, "name: empty, must be the name of the span")
	}
	if s.EndTime.Valid && s.StartTime.Valid && s.EndTime.V < s.StartTime.V {
		return agl.Errorf(agl.CodeInvalid, "end_time: got %v, which is before start_time %v", s.EndTime.V, s.StartTime.V)
	}
	return nil
}

// completed fills in what the span lacks.
func (t *Trace) completed(s agl.Span) agl.Span {
	s.RolloutID, s.AttemptID = t.rolloutID, t.attemptID
	if s.SpanID == "" {
		s.SpanID = randomid.Hex(8)
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
func (t *Trace) Flush(ctx context.Context) error { return t.queue.flush(ctx) }

// End implements [agl.Trace]. It waits for the store at most as long as ctx
// lasts; what is not stored by then is lost. Ending twice is an error.
func (t *Trace) End(ctx context.Context) ([]agl.Span, error) {
	if !t.ending.CompareAndSwap(false, true) {
		return nil, agl.Errorf(agl.CodeIllegalState, "trace of attempt %q: ended twice", t.attemptID)
	}
	stop := context.AfterFunc(ctx, t.cancel)
	defer stop()
	if t.root != nil {
		// A root without children is useless; setting ended first drops it.
		t.hasRoot = !t.queue.empty()
		t.ended.Store(!t.hasRoot)
		t.root.End()
	}
	t.ended.Store(true)
	n := t.processor.forget(t)
	t.watchMu.Lock()
	watchers := t.watchers
	t.watchMu.Unlock()
	for _, p := range watchers {
		n += p.forget(t)
	}
	if n > 0 {
		t.logger.WarnContext(ctx, "spans that are still open when their trace ends are dropped", "count", n)
	}
	t.queue.close()
	<-t.queue.done
	t.cancel()
	return t.collect(ctx)
}

// collect returns the stored spans by sequence id.
func (t *Trace) collect(ctx context.Context) ([]agl.Span, error) {
	t.queue.mu.Lock()
	spans, unsure, err := t.queue.stored, t.queue.unsure, t.queue.lossError()
	t.queue.stored, t.queue.unsure = nil, nil
	t.queue.mu.Unlock()
	if len(unsure) > 0 {
		// The answer to the write was lost, and their sequence ids with it.
		page, queryErr := t.cfg.Store.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: t.rolloutID, AttemptID: t.attemptID})
		if queryErr != nil {
			err = errors.Join(err, agl.Errorf(agl.ErrorCode(queryErr), "spans of attempt %q: %w", t.attemptID, queryErr))
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

// watchedBy notes that a processor has open spans of the trace: End makes it forget them.
func (t *Trace) watchedBy(p *processor) {
	if p == t.processor {
		return
	}
	t.watchMu.Lock()
	defer t.watchMu.Unlock()
	if !slices.Contains(t.watchers, p) {
		t.watchers = append(t.watchers, p)
	}
}

// spanEnded queues a span that has ended, unless the trace has ended before.
func (t *Trace) spanEnded(s sdktrace.ReadOnlySpan) {
	if t.ended.Load() {
		return
	}
	// This blocks while the queue is full: until a batch is settled, which takes RetryTimeout at most, or End's context ends.
	if _, err := t.queue.add(nil, t.assign(FromOTel(s))); err != nil {
		t.logger.Warn("span ended after its trace; it is dropped", "span", s.Name())
	}
}

// draft returns the span of a draft below the current span of ctx.
func (t *Trace) draft(ctx context.Context, d agl.SpanDraft) agl.Span {
	if d.TraceID == "" {
		d.TraceID = t.traceID.String()
		if d.ParentID == "" {
			d.ParentID = t.parentOf(ctx)
		}
	}
	return t.assign(fromDraft(d))
}

// assign makes the span belong to the attempt.
func (t *Trace) assign(span agl.Span) agl.Span {
	span.RolloutID, span.AttemptID, span.Resource = t.rolloutID, t.attemptID, t.resource
	return span
}

// record queues the span of a draft that names its trace and its parent. It blocks while the queue is full.
func (t *Trace) record(d agl.SpanDraft) error {
	_, err := t.queue.add(nil, t.assign(fromDraft(d)))
	return t.queueError(err)
}

// parentOf returns the current span of ctx, or the root if that span belongs to another trace.
func (t *Trace) parentOf(ctx context.Context) string {
	if sc := trace.SpanContextFromContext(ctx); sc.TraceID() == t.traceID {
		return sc.SpanID().String()
	}
	return t.rootID.SpanID().String()
}

// SpanFromDraft returns the span that a draft describes. Missing ids are those of the trace and the current span in
// ctx, or random; a zero start is now, and a zero end is the start. If ctx has a trace, the span belongs to its
// attempt.
func SpanFromDraft(ctx context.Context, d agl.SpanDraft) agl.Span {
	if t, ok := FromContext(ctx); ok {
		return t.draft(ctx, d)
	}
	return fromDraft(d)
}

type traceKey struct{}

// FromContext returns the trace that ctx carries, which may have ended.
func FromContext(ctx context.Context) (*Trace, bool) {
	tr, ok := ctx.Value(traceKey{}).(*Trace)
	return tr, ok
}

// activeTrace returns the open trace of ctx, or an error that says what needs it.
func activeTrace(ctx context.Context, what string) (*Trace, error) {
	tr, ok := FromContext(ctx)
	switch {
	case !ok:
		return nil, agl.Errorf(agl.CodeIllegalState, "%s: no active trace in the context; pass on the context that the agent or the hook was called with", what)
	case tr.ended.Load():
		return nil, agl.Errorf(agl.CodeIllegalState, "%s: the trace of attempt %q has ended", what, tr.attemptID)
	}
	return tr, nil
}
