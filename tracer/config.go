package tracer

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/bounds"
)

// Store is the part of an [agl.Store] that a tracer needs.
type Store interface {
	AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error)
	QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error)
	ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (first int64, err error)
}

// Config configures a [Tracer]. A zero field means its default; only Store is required.
type Config struct {
	// Store receives the spans. Required.
	Store Store
	// Name is the attribute agentlightning.tracer.name of every span's resource;
	// the default is "agl".
	Name string
	// MaxBatchSpans and MaxBatchBytes bound one write to the store; the defaults
	// are 256 spans and 4 MiB.
	MaxBatchSpans int
	MaxBatchBytes int
	// MaxBatchDelay is how long an ended span may wait to be stored in a batch with others; the default is 100 ms.
	MaxBatchDelay time.Duration
	// MaxQueueSpans and MaxQueueBytes bound the spans of one trace that are not
	// stored yet; ending a span beyond them blocks. The defaults are 4096 spans
	// and 32 MiB.
	MaxQueueSpans int
	MaxQueueBytes int
	// RetryTimeout is how long one batch is retried while the store is unavailable
	// or full; the default is 30 s, a negative one does not retry.
	RetryTimeout time.Duration
	// Logger logs dropped spans; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, "agl")
	c.MaxBatchSpans = cmp.Or(c.MaxBatchSpans, 256)
	c.MaxBatchBytes = cmp.Or(c.MaxBatchBytes, 4<<20)
	c.MaxBatchDelay = cmp.Or(c.MaxBatchDelay, 100*time.Millisecond)
	c.MaxQueueSpans = cmp.Or(c.MaxQueueSpans, 4096)
	c.MaxQueueBytes = cmp.Or(c.MaxQueueBytes, 32<<20)
	c.RetryTimeout = cmp.Or(c.RetryTimeout, 30*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	if c.Store == nil {
		return agl.Errorf(agl.CodeInvalid, "tracer: Config.Store: got nil, must be a store")
	}
	return bounds.NotNegative("tracer: Config.",
		bounds.Number("MaxBatchSpans", c.MaxBatchSpans), bounds.Number("MaxBatchBytes", c.MaxBatchBytes),
		bounds.Number("MaxBatchDelay", c.MaxBatchDelay), bounds.Number("MaxQueueSpans", c.MaxQueueSpans),
		bounds.Number("MaxQueueBytes", c.MaxQueueBytes),
	)
}
