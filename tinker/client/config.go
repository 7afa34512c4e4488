package client

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// Encoding is the form of forward_backward requests and of results.
type Encoding string

// The encodings.
const (
	// Auto takes what the server asks for, else JSON until the server refuses it by its media type (415),
	// and then protobuf from there on.
	Auto     Encoding = "auto"
	JSON     Encoding = "json"
	Protobuf Encoding = "protobuf"
)

// Normalization is how an engine makes one number of the losses of a batch.
type Normalization string

const (
	// NormalizationUnknown leaves batches as they are.
	NormalizationUnknown Normalization = ""
	// Sum adds the losses of all positions and data, as the protocol means it.
	Sum Normalization = "sum"
	// DatumMean divides the loss of each datum by the sum of its weights, and takes the mean over all data
	// since the last step (SkyRL's JAX backend). The losses importance_sampling, ppo and cispo are linear in the
	// advantages, which are scaled so that the gradient is that of the sum; cross_entropy is sent as
	// importance_sampling, after a forward pass for its log-probabilities, and dro is refused and not among the
	// capabilities. There can be one
	// ForwardBackward for each OptimStep.
	DatumMean Normalization = "datum_mean"
)

// Engine says what an engine can do. The zero value of each field is the least capable.
type Engine struct {
	// Losses are those that the engine has; nil means the protocol's cross_entropy, importance_sampling and
	// ppo.
	Losses []tinker.LossName
	// ImmutableSnapshots is that of tinker.Capabilities.
	ImmutableSnapshots bool
	// Normalization is how losses become one number.
	Normalization Normalization
	// OptimizerOptional is that of tinker.Capabilities.
	OptimizerOptional bool
	// Deterministic is that of tinker.Capabilities.
	Deterministic bool
	// Idempotent is true when a submit that is repeated with the same ids and body runs once.
	Idempotent bool
	// LoadDiscardsGradient is true when load_weights drops an unstepped gradient. Where it is false, an
	// optimizer step with learning rate 0 is sent before a load, and before an unload, if there may be one.
	LoadDiscardsGradient bool
	// WideSeeds is true when seeds have 64 bits. Where it is false, larger ones than 31 bits hold are sent as a
	// number of 30 bits that is made of them.
	WideSeeds bool
	// Vocab and Context are those of the models, for servers that do not say; 0 means unknown, and then
	// token ids are not checked before they are sent.
	Vocab, Context int
}

// sums reports whether a gradient is that of the sum of a batch's losses.
func (e Engine) sums() bool {
	return e.Normalization == Sum || e.Normalization == DatumMean && slices.Contains(e.Losses, tinker.ImportanceSampling)
}

// trains are the losses of which there can be a gradient, see [DatumMean].
func (e Engine) trains() []tinker.LossName {
	return slices.DeleteFunc(slices.Clone(e.Losses), func(l tinker.LossName) bool { return l == tinker.DRO && e.Normalization == DatumMean })
}

// Config configures a [Client]. URL is required; the zero value of every other field is usable.
type Config struct {
	// URL is the server's address without /api/v1, such as http://127.0.0.1:8000.
	URL string
	// APIKey is sent as X-API-Key; empty sends none.
	APIKey string
	// Encoding is that of forward_backward and of results; empty means Auto.
	Encoding Encoding
	// Engine describes the engine; nil means what the server says of itself, and of servers that do not the
	// least.
	Engine *Engine
	// MaxSamples is the number of Sample calls that are sent at once, others wait; zero means 256. A server
	// may ask for fewer.
	MaxSamples int
	// ChunkData and ChunkBytes bound the data, and the estimated size, of one forward_backward request; zero
	// means what the server says, or 1024 and 5 MB.
	ChunkData, ChunkBytes int
	// MaxResponseBytes bounds the size of an answer; zero means 256 MiB.
	MaxResponseBytes int64
	// RequestTimeout bounds one request; zero means 60 s. A request for a result that takes longer is made
	// again, as some servers hold them for minutes.
	RequestTimeout time.Duration
	// RetryBudget is how long requests are repeated, where that is safe, while none succeeds; zero means 2 min,
	// and negative never repeats.
	RetryBudget time.Duration
	// CallTimeout bounds a call in all; zero means 1 h.
	CallTimeout time.Duration
	// Heartbeat is the time between two signs of life of the session; zero means 10 s.
	Heartbeat time.Duration
	// Transport makes the requests; nil means a pool of connections of its own.
	Transport http.RoundTripper
	// Logger hears what is repeated and why; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Encoding == "" {
		c.Encoding = Auto
	}
	if c.MaxSamples == 0 {
		c.MaxSamples = 256
	}
	if c.MaxResponseBytes == 0 {
		c.MaxResponseBytes = 256 << 20
	}
	for _, f := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&c.RequestTimeout, time.Minute}, {&c.RetryBudget, 2 * time.Minute},
		{&c.CallTimeout, time.Hour}, {&c.Heartbeat, 10 * time.Second},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	if c.Transport == nil {
		dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
		c.Transport = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         dialer.DialContext,
			MaxIdleConnsPerHost: c.MaxSamples,
			IdleConnTimeout:     90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch c.Encoding {
	case Auto, JSON, Protobuf:
	default:
		return invalid("Encoding: %q is unknown; allowed are %q, %q, %q", c.Encoding, Auto, JSON, Protobuf)
	}
	if e := c.Engine; e != nil {
		switch e.Normalization {
		case NormalizationUnknown, Sum, DatumMean:
		default:
			return invalid("Engine.Normalization: %q is unknown; allowed are %q, %q", e.Normalization, Sum, DatumMean)
		}
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"MaxSamples", int64(c.MaxSamples)},
		{"ChunkData", int64(c.ChunkData)},
		{"ChunkBytes", int64(c.ChunkBytes)},
		{"MaxResponseBytes", c.MaxResponseBytes},
		{"RequestTimeout", int64(c.RequestTimeout)},
		{"CallTimeout", int64(c.CallTimeout)},
		{"Heartbeat", int64(c.Heartbeat)},
	} {
		if f.value < 0 {
			return invalid("%s: %d is negative", f.name, f.value)
		}
	}
	return nil
}

// baseURL is the URL of the calls' prefix.
func (c Config) baseURL() (string, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return "", invalid("URL: must be like http://127.0.0.1:8000: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", invalid("URL: %q must be like http://127.0.0.1:8000", u.Redacted())
	}
	return strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/api/v1") + "/api/v1", nil
}

// ErrInDoubt marks a model whose state is unknown, because a call that changes it may or may not have run.
// LoadWeights makes it known again.
var ErrInDoubt = errors.New("the model's state is in doubt")

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, "client: "+format, args...)
}
