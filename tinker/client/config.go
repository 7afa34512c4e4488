package client

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/bounds"
	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/tinker/engines"
)

// ErrInDoubt marks a model whose state is unknown, because a call that changes it may or may not have run. LoadWeights
// makes the state known again.
var ErrInDoubt = errors.New("the model's state is in doubt")

// Config configures a [Client]. URL is required; the zero value of every other field is usable.
type Config struct {
	// URL is the server's address without /api/v1, such as http://127.0.0.1:8000.
	URL string
	// APIKey is sent as X-API-Key; empty sends none.
	APIKey string
	// Encoding is the encoding of forward_backward and of results; empty means Engine's, and engines.Auto if that does
	// not say either. Auto takes what the server asks for, else JSON until the server answers 415, and then protobuf.
	Encoding engines.Encoding
	// Engine describes the engine; nil means what the server says of itself, or engines.Assumed.
	Engine *engines.Engine
	// MaxSamples is the largest number of Sample calls in flight; further calls wait. Zero means 256. A server may ask
	// for fewer.
	MaxSamples int
	// ChunkData and ChunkBytes bound the data, and the estimated size, of one forward_backward request; zero means what
	// the server says, or wire.DefaultChunkLen and wire.DefaultChunkBytes.
	ChunkData, ChunkBytes int
	// RequestTimeout bounds one request; zero means 60 s. A request for a result that takes longer is sent again, as
	// some servers hold such requests for minutes.
	RequestTimeout time.Duration
	// RetryFor is how long requests are sent again, where that is safe, while none succeeds; zero means 2 min, and
	// negative means never.
	RetryFor time.Duration
	// CallTimeout bounds a whole call, such as a gradient; zero means 1 h.
	CallTimeout time.Duration
	// TLS says whom the client trusts; nil means the CAs of the system. It is not used with a
	// Transport.
	TLS *tls.Config
	// Transport makes the requests; nil means a connection pool of the client's own.
	Transport http.RoundTripper
	// Logger receives retries and their reasons; nil discards them.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Encoding == "" && c.Engine != nil {
		c.Encoding = c.Engine.Encoding
	}
	c.Encoding = cmp.Or(c.Encoding, engines.Auto)
	c.MaxSamples = cmp.Or(c.MaxSamples, 256)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, time.Minute)
	c.RetryFor = cmp.Or(c.RetryFor, 2*time.Minute)
	c.CallTimeout = cmp.Or(c.CallTimeout, time.Hour)
	if c.Transport == nil {
		dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
		c.Transport = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         dialer.DialContext,
			MaxIdleConnsPerHost: c.MaxSamples,
			IdleConnTimeout:     90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
			TLSClientConfig:     c.TLS,
		}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	if err := (engines.Engine{Encoding: c.Encoding}).Validate(); err != nil {
		return invalid("%w", err)
	}
	if c.Engine != nil {
		if err := c.Engine.Validate(); err != nil {
			return invalid("Engine.%w", err)
		}
	}
	return bounds.NotNegative("client: ",
		bounds.Number("MaxSamples", c.MaxSamples), bounds.Number("ChunkData", c.ChunkData),
		bounds.Number("ChunkBytes", c.ChunkBytes), bounds.Number("RequestTimeout", c.RequestTimeout),
		bounds.Number("CallTimeout", c.CallTimeout),
	)
}

// baseURL is the URL below which every call lies.
func (c Config) baseURL() (string, error) {
	u, err := secret.ParseURL(c.URL)
	if err != nil {
		return "", invalid("URL: must be like http://127.0.0.1:8000: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", invalid("URL: %q must be like http://127.0.0.1:8000", secret.RedactURL(u.String()))
	}
	return strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/api/v1") + "/api/v1", nil
}

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, "client: "+format, args...)
}
