package client

import (
	"bytes"
	"cmp"
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

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/httpbody"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/rest/internal/wire"
)

// Client is an agl.Store behind HTTP. Its errors have the codes of the store's own errors. If the server stays
// unreachable, the error is agl.ErrUnavailable once the retry budget is spent.
//
// Operations that are safe to repeat are retried: reads, updates that set whole values, spans (which have keys), and
// creations, for which the client makes an Idempotency-Key if the caller gives none. An UpdateRollout that puts a
// rollout into the queue is retried only while the server cannot be reached at all.
//
// AddSpans may take several requests. If one of them fails, the spans of the previous requests are stored.
type Client struct {
	config        Config
	base          string     // scheme, host and path, including /v1/agl
	authorization string     // of a token or a password; see authorize
	tokenFile     *tokenFile // nil for none
	http          http.Client
	closed        atomic.Bool
	buffers       sync.Pool // of *bytes.Buffer
	bodies        bodies
	short         shortSpans
	unreturned    unreturned
	begun         *atomic.Bool // a request has ended otherwise than by a refused certificate
	known         *atomic.Bool // the server has executed a request, so it is a store
	retryLogged   atomic.Int64 // when a retry was logged last, in Unix nanoseconds; 0 if none was
	away          atomic.Bool  // a retry was logged, and no repeated request has succeeded since
	keyRefused    atomic.Bool  // the server refused the client's own key as it was asked for a caller; it is logged
}

var _ agl.Store = (*Client)(nil)

// New returns a client of the server at config.URL; CodeInvalid. It sends no request.
func New(config Config) (*Client, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	u, err := secret.ParseURL(config.URL)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "rest/client: URL: must be like http://127.0.0.1:4747: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, agl.Errorf(agl.CodeInvalid, "rest/client: URL: got %q, must be like http://127.0.0.1:4747", secret.RedactURL(u.String()))
	}
	if strings.HasSuffix(strings.TrimRight(u.Path, "/"), wire.Prefix) {
		return nil, agl.Errorf(agl.CodeInvalid, "rest/client: URL: got %q, must be the server's address without %s", secret.RedactURL(u.String()), wire.Prefix)
	}
	if config.Transport == nil {
		config.Transport = newTransport(config.TLS)
	}
	c := &Client{config: config, http: http.Client{Transport: config.Transport, CheckRedirect: httpserver.SameMethod}, short: shortSpans{from: config.ShortenFrom}, begun: new(atomic.Bool), known: new(atomic.Bool)}
	switch password, given := u.User.Password(); {
	case config.TokenFile != "":
		if c.tokenFile, err = openTokenFile(config.TokenFile, config.Logger); err != nil {
			return nil, err
		}
	case config.Token != "":
		c.authorization = "Bearer " + config.Token
	case given:
		c.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	c.base = strings.TrimRight(u.String(), "/") + wire.Prefix
	c.buffers.New = func() any { return new(bytes.Buffer) }
	return c, nil
}

// authorize returns the header with which requests are authorized; empty for none.
func (c *Client) authorize() string {
	if c.tokenFile != nil {
		return bearer(c.tokenFile.current())
	}
	return c.authorization
}

func bearer(token string) string { return "Bearer " + token }

// Token returns the token that requests have now, without that of a URL's user; empty for none.
func (c *Client) Token() string {
	if c.tokenFile != nil {
		return c.tokenFile.current()
	}
	return c.config.Token
}

// Close releases idle connections. Later calls fail with agl.ErrUnavailable; calls in progress end with their contexts.
func (c *Client) Close() error {
	c.closed.Store(true)
	c.http.CloseIdleConnections()
	return nil
}

// CreateRollouts implements agl.Store. The API does not have it: ErrUnimplemented.
func (c *Client) CreateRollouts(ctx context.Context, p agl.CreateRolloutsParams) ([]agl.AttemptedRollout, error) {
	return agl.UnimplementedStore{}.CreateRollouts(ctx, p)
}

// ReviseRollout implements agl.Store. The API does not have it: ErrUnimplemented.
func (c *Client) ReviseRollout(ctx context.Context, p agl.ReviseRolloutParams) (agl.AttemptedRollout, error) {
	return agl.UnimplementedStore{}.ReviseRollout(ctx, p)
}

// Capabilities implements agl.Store.
func (c *Client) Capabilities() agl.Capabilities {
	return agl.Capabilities{ReturnClaims: true, AddSpansJSON: true, QuerySpansJSON: true, QueryShortSpans: true, ReserveSequenceIDsOf: true, CloseQueue: true}
}

// Health asks the server once whether it is alive.
func (c *Client) Health(ctx context.Context) error {
	return c.do(ctx, operation{name: "Health", method: http.MethodGet, path: wire.Health, once: true}, nil)
}

// Ready implements agl.Store. It asks once.
func (c *Client) Ready(ctx context.Context) error {
	return c.do(ctx, operation{name: "Ready", method: http.MethodGet, path: wire.Ready, once: true}, nil)
}

// Statistics implements agl.Store.
func (c *Client) Statistics(ctx context.Context) (agl.Statistics, error) {
	return call[agl.Statistics](ctx, c, operation{name: "Statistics", method: http.MethodGet, path: wire.Statistics})
}

// operation is a call of the API as a request.
type operation struct {
	name     string // of the Go method
	method   string
	path     string         // below wire.Prefix, escaped
	body     []byte         // JSON, or nil
	shared   *httpbody.Body // the body, if it is large
	key      string         // the Idempotency-Key, if any
	since    string         // the Last-Event-ID, if any
	media    string         // the Content-Type of a shared body that is not JSON
	spanForm string         // the form of spans that the client could send from now on
	waits    time.Duration  // how long the server is asked to wait
	once     bool           // never repeat it
	unsent   bool           // repeat it only if no server has executed it, because executing it twice would do harm
	gone     bool           // a repeat that is answered with 404 has succeeded
}

// reply reads a successful answer. The body is valid until it returns.
type reply func(header http.Header, body []byte) error

// do performs an operation, and retries it while that may help and the retry budget lasts.
func (c *Client) do(ctx context.Context, op operation, read reply) error {
	start := time.Now()
	var last error // why the request is repeated
	for try := 0; ; try++ {
		if c.closed.Load() {
			return agl.Errorf(agl.CodeUnavailable, "%s: the client is closed", op.name)
		}
		asked, err := c.tryAgain(ctx, try, op, read)
		if err == nil || op.gone && try > 0 && errors.Is(err, agl.ErrNotFound) {
			if try > 0 && c.away.Swap(false) {
				c.config.Logger.InfoContext(ctx, "the store answers again", "operation", op.name, "after", time.Since(start))
			}
			return nil
		}
		if ctx.Err() != nil {
			return endedAfter(ctx, op.name, last)
		}
		again, ok := errors.AsType[*repeatable](err)
		if !ok {
			return err
		}
		last = again.err
		delay := max(asked, c.delay(try))
		if spent := time.Since(start); op.once || op.unsent && !again.unsent || spent+delay > c.config.RetryTimeout {
			if try == 0 {
				return again.err
			}
			return agl.Errorf(agl.ErrorCode(again.err), "%w (gave up after %d attempts in %s)", again.err, try+1, spent.Round(time.Millisecond))
		}
		c.config.Logger.Log(ctx, c.retryLevel(), "retrying a request", "operation", op.name, "attempt", try+1, "delay", delay, "error", again.err)
		if backoff.Sleep(ctx, delay) != nil {
			return endedAfter(ctx, op.name, last)
		}
	}
}

// retryLogEvery is how often retries are logged as warnings: many requests may wait for hours for a server that is away, and on a
// bad network one in ten may be repeated.
const retryLogEvery = 10 * time.Second

// retryLevel returns the level at which the next retry is logged.
func (c *Client) retryLevel() slog.Level {
	now, last := time.Now().UnixNano(), c.retryLogged.Load()
	if now >= last && now-last < int64(retryLogEvery) || !c.retryLogged.CompareAndSwap(last, now) {
		return slog.LevelDebug
	}
	c.away.Store(true)
	return slog.LevelWarn
}

// firstDelay bounds the delay before the first retry.
const firstDelay = 50 * time.Millisecond

// delay returns the delay after failure n, counted from 0.
func (c *Client) delay(n int) time.Duration {
	return backoff.Exponential{First: firstDelay, Max: c.config.MaxBackoff, Jitter: 1}.Delay(n)
}

// repeatable is an error after which the same request may succeed.
type repeatable struct {
	err    error
	unsent bool // no server has executed the request
	event  bool // the server sent it as the last event of a stream
}

func (r *repeatable) Error() string { return r.err.Error() }
func (r *repeatable) Unwrap() error { return r.err }

// tryAgain is attempt number n. Before it sends a large body again, it checks that the server answers; for a small
// request the check would cost as much as the request.
func (c *Client) tryAgain(ctx context.Context, n int, op operation, read reply) (asked time.Duration, err error) {
	if n > 0 && op.shared != nil {
		asked, err := c.try(ctx, operation{name: op.name, method: http.MethodGet, path: wire.Health}, nil)
		if _, down := errors.AsType[*repeatable](err); down {
			return asked, err
		}
	}
	return c.try(ctx, op, read)
}

// maxKept is the largest buffer that is kept for another answer, in bytes.
const maxKept = 1 << 20

// slowest is the rate in bytes a second at which a large request must at least be sent, beside the time for its answer. A lower one would
// also wait longer for a server that hangs.
const slowest = 512 << 10

var errIdle = errors.New("nothing came from it for too long")

// heardBody calls a function for each part of an answer that arrives.
type heardBody struct {
	io.Reader

	heard func()
}

func (b heardBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.heard()
	return n, err
}

// try performs an operation once. asked is how long the server asks to wait before the next attempt.
func (c *Client) try(ctx context.Context, op operation, read reply) (asked time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answerIn := c.config.RequestTimeout + op.waits
	if op.shared != nil {
		answerIn += time.Duration(op.shared.Len()) * time.Second / slowest
	}
	idle := time.AfterFunc(answerIn, func() { cancel(errIdle) })
	defer idle.Stop()
	res, asked, err := c.open(ctx, op)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errIdle):
		return 0, c.unreachable(op.name, errIdle)
	case err != nil:
		return asked, err
	}
	defer res.Body.Close()
	heard := func() { idle.Reset(c.config.RequestTimeout) }
	heard()
	buf, ok := c.buffers.Get().(*bytes.Buffer)
	if !ok {
		buf = new(bytes.Buffer)
	}
	defer func() {
		if buf.Cap() <= maxKept {
			buf.Reset()
			c.buffers.Put(buf)
		}
	}()
	if res.ContentLength > 0 {
		buf.Grow(int(min(res.ContentLength, 1<<30)) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(heardBody{res.Body, heard}); err != nil {
		if errors.Is(context.Cause(ctx), errIdle) {
			err = errIdle
		}
		return 0, c.unreachable(op.name, err)
	}
	if read == nil {
		return 0, nil
	}
	if err := read(res.Header, buf.Bytes()); err != nil {
		return 0, agl.Errorf(agl.CodeInternal, "%s: the server's answer cannot be read: %w", op.name, err)
	}
	return 0, nil
}

// maxErrorBytes bounds how much of a failed answer is read.
const maxErrorBytes = 1 << 20

// open sends a request and returns a successful answer, whose body the caller closes. asked is how long the server
// asks to wait before the next attempt.
func (c *Client) open(ctx context.Context, op operation) (res *http.Response, asked time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, op.method, c.base+op.path, bytes.NewReader(op.body))
	if err != nil {
		return nil, 0, agl.Errorf(agl.CodeInternal, "%s: %w", op.name, err)
	}
	if op.shared != nil {
		req.Body, req.ContentLength = op.shared.Reader(), op.shared.Len()
		req.GetBody = func() (io.ReadCloser, error) { return op.shared.Reader(), nil }
	}
	set := func(header, value string, given bool) {
		if given {
			req.Header[header] = []string{value}
		}
	}
	authorization := c.authorize()
	set("Authorization", authorization, authorization != "")
	set("Content-Type", cmp.Or(op.media, "application/json"), op.body != nil || op.shared != nil)
	set(wire.SpanForm, op.spanForm, op.spanForm != "")
	set(wire.IdempotencyKey, op.key, op.key != "")
	set(wire.LastEventID, op.since, op.since != "")
	res, err = c.http.Do(req)
	if err != nil {
		return nil, 0, c.unreachable(op.name, err)
	}
	c.begun.Store(true)
	if res.StatusCode >= 200 && res.StatusCode <= 299 {
		c.known.Store(true)
		return res, 0, nil
	}
	defer res.Body.Close()
	if redirected := httpserver.Redirected(req, res, "the store"); redirected != "" {
		return nil, 0, agl.Errorf(agl.CodeInvalid, "%s: %s", op.name, redirected)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBytes))
	if err != nil {
		return nil, 0, c.unreachable(op.name, err)
	}
	err = wire.DecodeError(op.name, res.StatusCode, body)
	if res.StatusCode == http.StatusUnauthorized && c.tokenFile != nil && c.tokenFile.replaced(authorization) {
		return nil, 0, &repeatable{err: err, unsent: true}
	}
	if res.StatusCode == http.StatusUnauthorized && res.Header.Get(wire.Certificate) == wire.CertificateOutdated {
		// The store ends a connection whose certificate has expired. The next one shows what its file has by now.
		c.http.CloseIdleConnections()
		return nil, 0, &repeatable{err: err, unsent: true}
	}
	if c.known.Load() && errors.Is(err, agl.ErrUnimplemented) && !wire.IsError(body) {
		// Something in between answers in place of the store, such as a load balancer that has no server for a moment. Before the first answer of a
		// store it is rather the URL that is wrong.
		return nil, backoff.RetryAfter(res.Header, time.Now()), &repeatable{err: agl.Errorf(agl.CodeUnavailable, "%s", err.Error())}
	}
	if wire.Retryable(res.StatusCode) && !errors.Is(err, agl.ErrExhausted) { // a spent budget does not come back
		return nil, backoff.RetryAfter(res.Header, time.Now()), &repeatable{err: err}
	}
	return nil, 0, err
}

// unreachable returns the error of a request that got no answer. A certificate that is refused by the first request is
// a mistake of whoever starts the client. Later it is an outage: it has expired or was replaced, which others can repair
// while the client repeats its requests.
func (c *Client) unreachable(name string, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the URL, which every message would repeat
	}
	const refused = "%s: no TLS connection to the store's server can be made: %w"
	switch untrusted := httpserver.Untrusted(err); {
	case untrusted && !c.begun.Load():
		return agl.Errorf(agl.CodeInvalid, refused, name, err)
	case untrusted:
		return &repeatable{err: agl.Errorf(agl.CodeUnavailable, refused, name, err), unsent: true}
	}
	c.begun.Store(true)
	dial, ok := errors.AsType[*net.OpError](err)
	return &repeatable{
		err:    agl.Errorf(agl.CodeUnavailable, "%s: the store's server does not answer: %w", name, err),
		unsent: ok && dial.Op == "dial",
	}
}

// ended returns the error of an operation whose ctx ended: that of ctx, as with any other store, with its cause.
func ended(ctx context.Context, name string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("%s: %w", name, cause)
	}
	return fmt.Errorf("%s: %w: %w", name, err, cause)
}

// endedAfter is [ended] of a call that was repeated after a failure. A deadline alone would not say that the server is away.
func endedAfter(ctx context.Context, name string, last error) error {
	err := ended(ctx, name)
	if last == nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w, after %v", err, last) //nolint:errorlint // not wrapped: the caller would take it for an error that a repeat may help
}

// keyOr returns the caller's idempotency key, or a new one if there is none.
func keyOr(given string) string {
	if given != "" {
		return given
	}
	return rand.Text()
}

// decodeTo returns a reply that decodes the answer.
func decodeTo(v any) reply {
	return func(_ http.Header, body []byte) error { return rawjson.Unmarshal(body, v) }
}

// call performs an operation and decodes the answer.
func call[T any](ctx context.Context, c *Client, op operation) (T, error) {
	var answer T
	err := c.do(ctx, op, decodeTo(&answer))
	return answer, err
}

// post sends a document and decodes the answer.
func post[T any](ctx context.Context, c *Client, name, path, key string, body rawjson.Appender) (T, error) {
	return call[T](ctx, c, operation{name: name, method: http.MethodPost, path: path, body: body.AppendJSON(nil), key: key})
}

// send posts a body that may not be JSON, because of invalid UTF-8 or a number that is not finite, and decodes the answer.
func send[T any](ctx context.Context, c *Client, op operation, body any) (answer T, err error) {
	op.method = http.MethodPost
	if op.body, err = json.Marshal(body); err != nil {
		return answer, agl.Errorf(agl.CodeInvalid, "%s: %w", op.name, err)
	}
	return call[T](ctx, c, op)
}

// get reads one noun. missing is the error message if there is none.
func get[T any](ctx context.Context, c *Client, name, path, missing string) (T, error) {
	found, err := call[*T](ctx, c, operation{name: name, method: http.MethodGet, path: path})
	switch {
	case err != nil:
		return *new(T), err
	case found == nil:
		return *new(T), agl.Errorf(agl.CodeNotFound, "%s", missing)
	}
	return *found, nil
}

// search sends a query and decodes the resulting page.
func search[T any](ctx context.Context, c *Client, name, path string, q wire.Query) (agl.Page[T], error) {
	return post[agl.Page[T]](ctx, c, name, path, "", q)
}
