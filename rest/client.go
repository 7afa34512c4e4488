package rest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
)

// ClientConfig configures a [Client]. URL is required; the zero value of every
// other field is usable.
type ClientConfig struct {
	// URL is the server's address without /v1/agl, such as http://127.0.0.1:4747.
	// A user and password in it (http://agl:TOKEN@host) are sent as HTTP Basic.
	URL string
	// Token is sent as a bearer token.
	Token string
	// RequestTimeout bounds one request, on top of what it waits for. Default 30 s.
	RequestTimeout time.Duration
	// LongPoll bounds how long one request blocks on the server; longer waits take
	// several. Default 25 s, at most 60 s.
	LongPoll time.Duration
	// RetryBudget is how long an operation that is safe to repeat is repeated
	// while the server is away or failing. Default 1 min; negative never repeats.
	RetryBudget time.Duration
	// MaxBackoff bounds the pause between two tries, which is random between 0 and
	// a bound that doubles from 50 ms. Default 3 s.
	MaxBackoff time.Duration
	// EventSilence is how long an event stream may bring nothing, not even a
	// heartbeat, before it counts as broken. Default 45 s, which is three of the
	// server's heartbeats.
	EventSilence time.Duration
	// SpanBatch bounds the spans of one request. Default 512.
	SpanBatch int
	// SpanBatchBytes bounds the size of one request with several spans. Default 4 MiB.
	SpanBatchBytes int
	// Transport makes the requests. Default a pool of its own, which keeps as many
	// connections as calls are made at once.
	Transport http.RoundTripper
	// Logger receives what was repeated and why. Default discards.
	Logger *slog.Logger
}

func (c ClientConfig) withDefaults() ClientConfig {
	if c.RequestTimeout == 0 {
		c.RequestTimeout = 30 * time.Second
	}
	if c.LongPoll == 0 {
		c.LongPoll = 25 * time.Second
	}
	if c.RetryBudget == 0 {
		c.RetryBudget = time.Minute
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = 3 * time.Second
	}
	if c.EventSilence == 0 {
		c.EventSilence = missedHeartbeats * eventHeartbeat
	}
	if c.SpanBatch == 0 {
		c.SpanBatch = 512
	}
	if c.SpanBatchBytes == 0 {
		c.SpanBatchBytes = 4 << 20
	}
	if c.Transport == nil {
		c.Transport = newTransport()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if tcp, ok := conn.(*net.TCPConn); ok {
				return partsConn{tcp}, err
			}
			return conn, err
		},
		MaxIdleConnsPerHost:   1024,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // costs more than it saves between machines of one network
	}
}

func (c ClientConfig) validate() error {
	switch {
	case c.RequestTimeout < 0:
		return agl.Errorf(agl.CodeInvalid, "rest: RequestTimeout: got %s, must not be negative", c.RequestTimeout)
	case c.LongPoll < 0 || c.LongPoll > maxWaitSeconds*time.Second:
		return agl.Errorf(agl.CodeInvalid, "rest: LongPoll: got %s, must be between 0 and %d s", c.LongPoll, maxWaitSeconds)
	case c.MaxBackoff < 0:
		return agl.Errorf(agl.CodeInvalid, "rest: MaxBackoff: got %s, must not be negative", c.MaxBackoff)
	case c.EventSilence < 0:
		return agl.Errorf(agl.CodeInvalid, "rest: EventSilence: got %s, must not be negative", c.EventSilence)
	case c.SpanBatch < 0:
		return agl.Errorf(agl.CodeInvalid, "rest: SpanBatch: got %d, must not be negative", c.SpanBatch)
	case c.SpanBatchBytes < 0:
		return agl.Errorf(agl.CodeInvalid, "rest: SpanBatchBytes: got %d, must not be negative", c.SpanBatchBytes)
	}
	return nil
}

// Client is an agl.Store that lies behind HTTP. Errors carry the same codes as
// the store's own; a server that stays away is agl.ErrUnavailable once the
// retry budget is spent. Operations that are safe to repeat are repeated: reads,
// whole-value updates, spans (which have keys), and, by an Idempotency-Key that
// the client makes up if there is none, those that create. An UpdateRollout that
// queues is repeated only while the server cannot be reached at all.
//
// AddSpans may take several requests: then the spans of the earlier ones are
// stored when a later one fails.
type Client struct {
	agl.UnimplementedStore // there is no route yet for ReturnClaims

	config        ClientConfig
	base          string // scheme, host and path up to and with /v1/agl
	authorization string
	http          http.Client
	closed        atomic.Bool
	buffers       sync.Pool // of *bytes.Buffer
}

var _ agl.Store = (*Client)(nil)

// Capabilities implements agl.Store.
func (c *Client) Capabilities() agl.Capabilities {
	return agl.Capabilities{AddSpansJSON: true, QuerySpansJSON: true, ReserveSequenceIDsOf: true}
}

// NewClient returns a client of the server at config.URL. It makes no request.
func NewClient(config ClientConfig) (*Client, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	u, err := url.Parse(config.URL)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "rest: URL: must be like http://127.0.0.1:4747: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, agl.Errorf(agl.CodeInvalid, "rest: URL: got %q, must be like http://127.0.0.1:4747", u.Redacted())
	}
	c := &Client{config: config, http: http.Client{Transport: config.Transport}}
	switch password, given := u.User.Password(); {
	case config.Token != "":
		c.authorization = "Bearer " + config.Token
	case given:
		c.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	c.base = strings.TrimRight(u.String(), "/") + prefix
	c.buffers.New = func() any { return new(bytes.Buffer) }
	return c, nil
}

// Close releases idle connections. Calls that follow fail with
// agl.ErrUnavailable; calls on their way end with their contexts.
func (c *Client) Close() error {
	c.closed.Store(true)
	c.http.CloseIdleConnections()
	return nil
}

// Health asks the server whether it serves. It is not repeated.
func (c *Client) Health(ctx context.Context) error {
	return c.do(ctx, exchange{op: "Health", method: http.MethodGet, path: "/health", once: true}, nil)
}

// exchange is one operation as a request.
type exchange struct {
	op     string
	method string
	path   string // below /v1/agl, escaped
	body   []byte // JSON, or nil
	parts  *parts // the body when it is not in one piece
	key    string // the Idempotency-Key, if any
	giveUp string // the value of headerAbandon, if any
	waits  time.Duration
	once   bool // is not repeated
	unsent bool // is repeated only while no server has seen it: a second execution would be another one
	gone   bool // is done if a repeat finds nothing
}

// answer reads a successful answer's body, which is reused afterwards.
type answer func(header http.Header, body []byte) error

// do performs an exchange, again and again while that can help and the retry
// budget lasts.
func (c *Client) do(ctx context.Context, x exchange, read answer) error {
	start := time.Now()
	for try := 0; ; try++ {
		if c.closed.Load() {
			return agl.Errorf(agl.CodeUnavailable, "%s: the client is closed", x.op)
		}
		pause, err := c.once(ctx, x, read)
		if err == nil || x.gone && try > 0 && errors.Is(err, agl.ErrNotFound) {
			return nil
		}
		if ctx.Err() != nil {
			return ended(ctx, x.op)
		}
		var again *repeatable
		if !errors.As(err, &again) {
			return err
		}
		pause = max(pause, c.backoff().Delay(try))
		if spent := time.Since(start); x.once || x.unsent && !again.unsent || spent+pause > c.config.RetryBudget {
			if try == 0 {
				return again.err
			}
			return agl.Errorf(agl.ErrorCode(again.err), "%w (gave up after %d tries in %s)", again.err, try+1, spent.Round(time.Millisecond))
		}
		c.config.Logger.Warn("request will be repeated", "operation", x.op, "try", try+1, "pause", pause, "error", again.err)
		if backoff.Sleep(ctx, pause) != nil {
			return ended(ctx, x.op)
		}
	}
}

// repeatable marks an error after which the same request may succeed.
type repeatable struct {
	err    error
	unsent bool // the request has reached nobody
}

func (r *repeatable) Error() string { return r.err.Error() }
func (r *repeatable) Unwrap() error { return r.err }

// once performs an exchange once. pause is what the server asks to wait before
// the next try.
func (c *Client) once(ctx context.Context, x exchange, read answer) (pause time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout+x.waits)
	defer cancel()
	req, err := c.request(ctx, x)
	if err != nil {
		return 0, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, unreachable(x.op, err)
	}
	defer res.Body.Close()
	buf, ok := c.buffers.Get().(*bytes.Buffer)
	if !ok {
		buf = new(bytes.Buffer)
	}
	defer c.putBuffer(buf)
	if res.ContentLength > 0 {
		buf.Grow(int(min(res.ContentLength, 1<<30)) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(res.Body); err != nil {
		return 0, unreachable(x.op, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		err := wireError(x.op, res.StatusCode, buf.Bytes())
		if retryable(res.StatusCode) {
			return backoff.RetryAfter(res.Header, time.Now()), &repeatable{err: err}
		}
		return 0, err
	}
	if read == nil {
		return 0, nil
	}
	if err := read(res.Header, buf.Bytes()); err != nil {
		return 0, agl.Errorf(agl.CodeInternal, "%s: the server's answer cannot be read: %w", x.op, err)
	}
	return 0, nil
}

func unreachable(op string, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the URL, which every message would repeat
	}
	dialling, ok := errors.AsType[*net.OpError](err)
	return &repeatable{
		err:    agl.Errorf(agl.CodeUnavailable, "%s: the store's server does not answer: %w", op, err),
		unsent: ok && dialling.Op == "dial",
	}
}

func (c *Client) putBuffer(buf *bytes.Buffer) {
	if buf.Cap() <= 4*keptBuffer {
		buf.Reset()
		c.buffers.Put(buf)
	}
}

func (c *Client) request(ctx context.Context, x exchange) (*http.Request, error) {
	var body io.Reader
	if x.body != nil {
		body = bytes.NewReader(x.body)
	}
	req, err := http.NewRequestWithContext(ctx, x.method, c.base+x.path, body)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInternal, "%s: %w", x.op, err)
	}
	if x.parts != nil {
		req.Body, req.ContentLength = x.parts.open(), x.parts.size()
		req.GetBody = func() (io.ReadCloser, error) { return x.parts.open(), nil }
	}
	if x.body != nil || x.parts != nil {
		req.Header["Content-Type"] = []string{"application/json"}
	}
	if x.key != "" {
		req.Header[headerIdempotency] = []string{x.key}
	}
	if x.giveUp != "" {
		req.Header[headerAbandon] = []string{x.giveUp}
	}
	if c.authorization != "" {
		req.Header["Authorization"] = []string{c.authorization}
	}
	return req, nil
}

// backoff is the schedule of tries of one operation.
func (c *Client) backoff() backoff.Exponential {
	return backoff.Exponential{First: 50 * time.Millisecond, Max: c.config.MaxBackoff, Jitter: 1}
}

// ended is the error of an operation whose ctx ended: it is the error of ctx,
// as with any other store, and tells the cause.
func ended(ctx context.Context, op string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("%s: %w", op, cause)
	}
	return fmt.Errorf("%s: %w: %w", op, err, cause)
}

// newKey returns an idempotency key if the caller has none.
func newKey(given string) string {
	if given != "" {
		return given
	}
	return rand.Text()
}

// decodeAnswer returns an answer that decodes one document.
func decodeAnswer(v unmarshaler) answer {
	return func(_ http.Header, body []byte) error {
		return decodeDocument(rawjson.NewDecoder(body), v)
	}
}

// document is a noun that decodes itself.
type document[T any] interface {
	*T
	unmarshaler
}

// list decodes an array of nouns.
type list[T any, P document[T]] struct{ items []T }

func (l *list[T, P]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	l.items = []T{}
	return read(dec).List(func() error {
		l.items = append(l.items, *new(T))
		return P(&l.items[len(l.items)-1]).UnmarshalJSONFrom(dec)
	})
}

// page decodes a page of nouns.
type page[T any, P document[T]] struct{ agl.Page[T] }

func (p *page[T, P]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		switch string(name) {
		case "items":
			var l list[T, P]
			err := l.UnmarshalJSONFrom(dec)
			p.Items = l.items
			return err
		case "limit":
			return rawjson.Int(read(dec), &p.Limit)
		case "offset":
			return rawjson.Int(read(dec), &p.Offset)
		case "total":
			return rawjson.Int(read(dec), &p.Total)
		default:
			return dec.SkipValue()
		}
	})
}

// found decodes a noun, or null when there is none.
type found[T any, P document[T]] struct {
	item T
	ok   bool
}

func (f *found[T, P]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == 'n' {
		return dec.SkipValue()
	}
	f.ok = true
	return P(&f.item).UnmarshalJSONFrom(dec)
}

// get asks for one noun; missing is the message of the error if there is none.
func get[T any, P document[T]](ctx context.Context, c *Client, op, path, missing string) (T, error) {
	var f found[T, P]
	err := c.do(ctx, exchange{op: op, method: http.MethodGet, path: path}, decodeAnswer(&f))
	if err == nil && !f.ok {
		err = agl.Errorf(agl.CodeNotFound, "%s", missing)
	}
	return f.item, err
}

// post sends a document and reads the noun that answers it.
func post[T any, P document[T]](ctx context.Context, c *Client, x exchange) (T, error) {
	var item T
	x.method = http.MethodPost
	err := c.do(ctx, x, decodeAnswer(P(&item)))
	return item, err
}

// search sends a query and reads the page that answers it.
func search[T any, P document[T]](ctx context.Context, c *Client, op, path string, body []byte) (agl.Page[T], error) {
	var p page[T, P]
	err := c.do(ctx, exchange{op: op, method: http.MethodPost, path: path, body: body}, decodeAnswer(&p))
	return p.Page, err
}
