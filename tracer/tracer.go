package tracer

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/agl-go/agl"
)

// Tracer traces attempts into a store. It is safe for concurrent use. It owns no
// goroutine; each of its traces owns one.
type Tracer struct {
	core core
}

var _ agl.Tracer = (*Tracer)(nil)

// New returns a tracer.
func New(cfg Config) (*Tracer, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	t := &Tracer{core: core{cfg: cfg}}
	t.core.processor = newProcessor(&t.core)
	t.core.provider = newProvider(t.core.processor)
	return t, nil
}

// TracerProvider returns the OpenTelemetry provider whose spans reach the store. A span belongs to the attempt whose
// trace is in the context in which the span was started. A span outside of any attempt is not recorded. Give the
// provider to an instrumentation, or make it the global one, to record existing code.
func (t *Tracer) TracerProvider() trace.TracerProvider { return t.core.provider }

// Start begins the trace of an attempt. It opens a root span with the given name, which is stored when the trace
// ends, unless it is the only span. If ctx carries a trace of the same attempt that has ended, the new one continues
// it with the same trace id and root. The trace survives the cancellation of ctx: it ends with [Trace.End], which the
// caller must call.
func (t *Tracer) Start(ctx context.Context, p agl.TraceParams) (context.Context, agl.Trace, error) {
	if p.RolloutID == "" || p.AttemptID == "" {
		return ctx, nil, agl.Errorf(agl.CodeInvalid, "trace of rollout %q, attempt %q: both ids are required", p.RolloutID, p.AttemptID)
	}
	p.Name = cmp.Or(p.Name, p.RolloutID)
	tr, err := newTrace(&t.core, p)
	if err != nil {
		return ctx, nil, err
	}
	return tr.begin(ctx), tr, nil
}
