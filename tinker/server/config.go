package server

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/bounds"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
)

// Config configures a [Server]. Service is required; the zero value of every other field is usable.
type Config struct {
	// Service is the engine.
	Service tinker.Service
	// APIKey is what clients must send as X-API-Key; empty asks for none.
	APIKey string
	// Access checks the keys of clients that do not send the APIKey, such as those of a store; nil knows none. With it,
	// every request needs a key.
	Access access.Checker
	// Audit records what callers that Access knows do to models and weights: who creates, saves, loads and deletes them.
	// Training steps are too many to record. Nil records nothing.
	Audit access.Teller
	// Failed limits how often an address may send a wrong key; nil is without limit.
	Failed *access.Throttle
	// Encoding restricts forward_backward requests and results to one encoding, as some engines do. Empty means
	// engines.Auto: both are read, and results are sent as the Accept header asks.
	Encoding engines.Encoding
	// Compress asks SDKs to compress forward_backward requests with zstd, which is always understood.
	Compress bool
	// Order is what sequence ids mean. With engines.Ignored a repeated submit runs again.
	Order engines.Order
	// HideEngine leaves the description of the engine out of the capabilities, as other servers do.
	HideEngine bool
	// LongPoll is how long a request for a result waits for it; zero means 30 s.
	LongPoll time.Duration
	// MaxResults and MaxResultBytes bound the results that are kept for repeated reads, by number and by memory; zero
	// means 1024 and 256 MiB. The oldest are dropped first, and the newest is always kept. A request for a dropped result
	// gets 410; clients then submit the call again.
	MaxResults     int
	MaxResultBytes int64
	// SessionTimeout is how long a session may be idle; zero means 5 min. Its creation, heartbeats, requests for
	// models and sampling sessions in it, and their calls, from their submit to their end, count as activity. The next request for any session ends the expired ones and unloads their models.
	SessionTimeout time.Duration
	// MaxModels bounds the models in training; zero means 64. One more is refused until one is unloaded or its session ends.
	MaxModels int
	// MaxSamplers bounds the weights that are open for sampling sessions; zero means 64. Beyond it the least recently
	// used are closed: first those with a name, which are opened again when they are needed, then those without one,
	// which are lost.
	MaxSamplers int
	// Decode returns the text of tokens, for requests with stop texts; nil refuses such requests.
	Decode func(ids []int32) string
	// MaxBodyBytes bounds a request's body, also after decompression; zero means 64 MiB.
	MaxBodyBytes int64
	// Logger receives failures of the engine; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Encoding = cmp.Or(c.Encoding, engines.Auto)
	c.LongPoll = cmp.Or(c.LongPoll, 30*time.Second)
	c.MaxResults = cmp.Or(c.MaxResults, 1024)
	c.MaxResultBytes = cmp.Or(c.MaxResultBytes, 256<<20)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, 5*time.Minute)
	c.MaxModels = cmp.Or(c.MaxModels, 64)
	c.MaxSamplers = cmp.Or(c.MaxSamplers, 64)
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 64<<20)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	if c.Service == nil {
		return invalid("Service is nil; an engine is required")
	}
	if err := (engines.Engine{Encoding: c.Encoding, Order: c.Order}).Validate(); err != nil {
		return invalid("%w", err)
	}
	return bounds.NotNegative("tinker: ",
		bounds.Number("LongPoll", c.LongPoll), bounds.Number("MaxResults", c.MaxResults),
		bounds.Number("MaxResultBytes", c.MaxResultBytes), bounds.Number("SessionTimeout", c.SessionTimeout),
		bounds.Number("MaxModels", c.MaxModels), bounds.Number("MaxSamplers", c.MaxSamplers),
		bounds.Number("MaxBodyBytes", c.MaxBodyBytes),
	)
}

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, "tinker: "+format, args...)
}
