package tracer

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/agl-go/agl"
)

// Store is the part of an [agl.Store] that traces write to.
type Store interface {
	AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error)
	QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error)
}

// Config configures a [Tracer]. Every zero value but Store's has a default.
type Config struct {
	// Store takes the spans. Required.
	Store Store
	// Name is the attribute agentlightning.tracer.name of every span's resource;
	// the default is "agl".
	Name string
	// MaxBatchSpans and MaxBatchBytes bound one write to the store; the defaults
	// are 256 spans and 4 MiB.
	MaxBatchSpans int
	MaxBatchBytes int
	// MaxBatchDelay is how long an ended span may wait for company; the default
	// is 100 ms.
	MaxBatchDelay time.Duration
	// MaxQueueSpans and MaxQueueBytes bound what one trace holds that is not
	// stored yet; whoever ends a span beyond them waits. The defaults are 4096
	// spans and 32 MiB.
	MaxQueueSpans int
	MaxQueueBytes int
	// RetryBudget is how long one batch is retried while the store is away or
	// full; the default is 30 s, a negative one does not retry.
	RetryBudget time.Duration
	// Logger is told about dropped spans; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	setDefault(&c.Name, "agl")
	setDefault(&c.MaxBatchSpans, 256)
	setDefault(&c.MaxBatchBytes, 4<<20)
	setDefault(&c.MaxBatchDelay, 100*time.Millisecond)
	setDefault(&c.MaxQueueSpans, 4096)
	setDefault(&c.MaxQueueBytes, 32<<20)
	setDefault(&c.RetryBudget, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	if c.Store == nil {
		return agl.Errorf(agl.CodeInvalid, "tracer: Config.Store is nil, a store is required")
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"MaxBatchSpans", int64(c.MaxBatchSpans)},
		{"MaxBatchBytes", int64(c.MaxBatchBytes)},
		{"MaxBatchDelay", int64(c.MaxBatchDelay)},
		{"MaxQueueSpans", int64(c.MaxQueueSpans)},
		{"MaxQueueBytes", int64(c.MaxQueueBytes)},
	} {
		if f.value < 0 {
			return agl.Errorf(agl.CodeInvalid, "tracer: Config.%s: got %d, must not be negative", f.name, f.value)
		}
	}
	return nil
}

// Tracer traces attempts into a store. It is safe for concurrent use and owns
// no goroutine; each of its traces owns one.
type Tracer struct {
	cfg       Config
	processor *processor
	provider  *sdktrace.TracerProvider
}

var _ agl.Tracer = (*Tracer)(nil)

// New makes a tracer.
func New(cfg Config) (*Tracer, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	p := newProcessor(cfg.Logger)
	return &Tracer{
		cfg:       cfg,
		processor: p,
		provider: sdktrace.NewTracerProvider(
			sdktrace.WithSpanProcessor(p),
			sdktrace.WithSampler(sdktrace.AlwaysSample()),
			// The SDK's limits (128 attributes a span) would cut long chats.
			sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{
				AttributeValueLengthLimit: -1, AttributeCountLimit: -1, EventCountLimit: -1,
				LinkCountLimit: -1, AttributePerEventCountLimit: -1, AttributePerLinkCountLimit: -1,
			}),
		),
	}, nil
}

// TracerProvider returns the OpenTelemetry provider whose spans reach the store:
// each belongs to the attempt that is traced in the context that it was started
// with, and one started outside of any attempt goes nowhere. Hand it to an
// instrumentation, or make it the global one, to record existing code.
func (t *Tracer) TracerProvider() trace.TracerProvider { return t.provider }

// Start begins the trace of an attempt. It opens a root span of the name given,
// which is stored when the trace ends, unless it would be the only one. When ctx
// carries a trace of the same attempt that has ended, the new one continues it:
// its spans join the same trace id and root. The trace outlives the cancellation
// of ctx: it ends with [Trace.End], which must be called.
func (t *Tracer) Start(ctx context.Context, p agl.TraceParams) (context.Context, agl.Trace, error) {
	if p.RolloutID == "" || p.AttemptID == "" {
		return ctx, nil, agl.Errorf(agl.CodeInvalid, "trace of rollout %q, attempt %q: both ids are required", p.RolloutID, p.AttemptID)
	}
	if p.Name == "" {
		p.Name = p.RolloutID
	}
	tr, err := newTrace(t, p)
	if err != nil {
		return ctx, nil, err
	}
	return tr.begin(ctx), tr, nil
}

type traceKey struct{}

// FromContext returns the open trace that ctx carries.
func FromContext(ctx context.Context) (*Trace, bool) {
	tr, ok := ctx.Value(traceKey{}).(*Trace)
	return tr, ok
}

// activeTrace is FromContext for those who cannot do without.
func activeTrace(ctx context.Context, what string) (*Trace, error) {
	tr, ok := FromContext(ctx)
	switch {
	case !ok:
		return nil, agl.Errorf(agl.CodeIllegalState, "%s: no active trace in the context; pass on the context that the agent or the hook was called with", what)
	case tr.ended.Load():
		return nil, agl.Errorf(agl.CodeIllegalState, "%s: the trace of attempt %s has ended", what, tr.attemptID)
	}
	return tr, nil
}

// onceFunc calls f at most once; f may be nil.
type onceFunc struct {
	done atomic.Bool
	f    func()
}

func (o *onceFunc) call() {
	if o.f != nil && o.done.CompareAndSwap(false, true) {
		o.f()
	}
}
