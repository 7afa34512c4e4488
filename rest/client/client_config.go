package client

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/bounds"
	"github.com/agl-go/agl/internal/httpbody"
	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/rest/internal/wire"
)

// Config configures a [Client]. URL is required; the zero value of every other field is usable.
type Config struct {
	// URL is the server's address without /v1/agl, such as http://127.0.0.1:4747. A
	// user and password in it (http://agl:TOKEN@host) are sent as HTTP Basic.
	URL string
	// Token is sent as a bearer token.
	Token string
	// TokenFile, in place of Token, is a file with the token, such as a workload identity's. It is read again every 10 s.
	TokenFile string
	// RequestTimeout is how long a request waits for its answer, and then for each part of it, not counting the time that
	// it asks the server to block. A large body has a second more for each 512 KiB. Default 30 s.
	RequestTimeout time.Duration
	// LongPoll bounds how long one request blocks on the server. A longer wait takes
	// several requests. Default 25 s, at most 60 s.
	LongPoll time.Duration
	// RetryTimeout is how long an operation that is safe to repeat is retried while the server is unreachable or
	// failing. Default 1 min; a negative one never retries.
	RetryTimeout time.Duration
	// MaxBackoff bounds the delay between two attempts. The delay is random, below a bound that doubles from 50 ms.
	// Default 3 s.
	MaxBackoff time.Duration
	// EventIdleTimeout is how long an event stream may be silent, without even a heartbeat, before it counts as
	// broken. Default 45 s, three heartbeats of the server.
	EventIdleTimeout time.Duration
	// SpanBatch bounds the spans of one request. Default 512.
	SpanBatch int
	// SpanBatchBytes bounds the size of a request with more than one span. Default 4 MiB.
	SpanBatchBytes int
	// ShortenFrom is the size of a span in bytes from which it is sent as what it adds to an earlier one, if the server
	// takes that: it saves bytes and costs CPU on both sides. Default 42 KiB; less is for slow networks.
	ShortenFrom int
	// TLS configures which servers the client trusts and its own certificate; a Transport needs its own. Default
	// the CAs of the system.
	TLS *tls.Config
	// Transport sends the requests. Default a pool of the client's own, which keeps a connection for each of up to
	// 1024 concurrent calls.
	Transport http.RoundTripper
	// Logger logs retries and their reasons. Default discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 30*time.Second)
	c.LongPoll = cmp.Or(c.LongPoll, 25*time.Second)
	c.RetryTimeout = cmp.Or(c.RetryTimeout, time.Minute)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 3*time.Second)
	c.EventIdleTimeout = cmp.Or(c.EventIdleTimeout, 3*wire.EventHeartbeat)
	c.SpanBatch = cmp.Or(c.SpanBatch, 512)
	c.SpanBatchBytes = cmp.Or(c.SpanBatchBytes, 4<<20)
	c.ShortenFrom = cmp.Or(c.ShortenFrom, 42<<10)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func newTransport(settings *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           httpbody.Dial(dialer.DialContext),
		MaxIdleConnsPerHost:   1024,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // costs more than it saves between machines of one network
		TLSClientConfig:       settings,
	}
}

func (c Config) validate() error {
	if err := bounds.NotNegative("rest/client: ",
		bounds.Number("RequestTimeout", c.RequestTimeout), bounds.Number("MaxBackoff", c.MaxBackoff),
		bounds.Number("EventIdleTimeout", c.EventIdleTimeout),
		bounds.Number("SpanBatch", c.SpanBatch), bounds.Number("SpanBatchBytes", c.SpanBatchBytes),
		bounds.Number("ShortenFrom", c.ShortenFrom),
	); err != nil {
		return err
	}
	if c.LongPoll < 0 || c.LongPoll > wire.MaxWait {
		return agl.Errorf(agl.CodeInvalid, "rest/client: LongPoll: got %s, must be between 0 and %s", c.LongPoll, wire.MaxWait)
	}
	if c.Token != "" && c.TokenFile != "" {
		return agl.Errorf(agl.CodeInvalid, "rest/client: Token and TokenFile: give one of them")
	}
	return secret.Check("rest/client: Token", c.Token)
}
