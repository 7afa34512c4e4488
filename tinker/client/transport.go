package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker/wire"
)

// request is one request. The zero method is POST, the zero media type that of JSON.
type request struct {
	method string
	path   string // below wire.Prefix
	body   []byte
	media  string
	zstd   bool   // body is compressed
	accept string // of the result
	early  bool   // the answer to the submit may have the result
	// repeat is true when running the request twice does no harm.
	repeat bool
	// budget bounds the repeats; zero is that of the client.
	budget time.Duration
}

func post(path string, message any) (request, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return request{}, invalid("%s: %w", path, err)
	}
	return request{path: path, body: body}, nil
}

// reply is an answer with any status.
type reply struct {
	status int
	media  string
	after  time.Duration // of a Retry-After header
	body   []byte
}

// once makes a request once.
func (c *Client) once(ctx context.Context, r request) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	method := r.method
	if method == "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return reply{}, invalid("%s: %w", r.path, err)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", wire.JSONType)
		if r.media != "" {
			req.Header.Set("Content-Type", r.media)
		}
	}
	if r.zstd {
		req.Header.Set("Content-Encoding", "zstd")
	}
	req.Header.Set("Accept", wire.JSONType)
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.early {
		req.Header.Set(wire.PreferHeader, wire.PreferResult)
	}
	if c.cfg.APIKey != "" {
		req.Header.Set(wire.KeyHeader, c.cfg.APIKey)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.cfg.MaxResponseBytes+1))
	if err != nil {
		return reply{}, err
	}
	if int64(len(body)) > c.cfg.MaxResponseBytes {
		return reply{}, agl.Errorf(agl.CodeExhausted, "client: %s: the answer is larger than %d bytes", r.path, c.cfg.MaxResponseBytes)
	}
	out := reply{status: resp.StatusCode, body: body}
	out.media, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		out.after = time.Duration(seconds) * time.Second
	}
	return out, nil
}

const (
	firstPause = 50 * time.Millisecond
	longPause  = 30 * time.Second
	// mostFaults bounds the answers 500 to one request in a row: some servers answer so to what they will
	// never accept.
	mostFaults = 5
	// farewell bounds the repeats of each request of an unload: a model that is not unloaded ends with its session.
	farewell = 5 * time.Second
)

// trouble paces the repeats of one request.
type trouble struct {
	since  time.Time // of the first failure in a row; zero is none
	tries  int
	faults int
}

// again waits before the next try, or says that there is none.
func (t *trouble) again(ctx context.Context, c *Client, r request, rep reply, cause error) error {
	now := time.Now()
	if t.since.IsZero() {
		t.since = now
	}
	if rep.status == http.StatusInternalServerError {
		t.faults++
	}
	budget := c.cfg.RetryBudget
	if r.budget > 0 {
		budget = min(budget, r.budget)
	}
	if budget < 0 || now.Sub(t.since) >= budget || t.faults >= mostFaults {
		return cause
	}
	bound := min(firstPause<<min(t.tries, 20), longPause)
	pause := max(bound/2+rand.N(bound/2), min(rep.after, longPause))
	t.tries++
	c.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "client: repeat a request", slog.String("path", r.path), slog.Duration("pause", pause), slog.Any("error", cause))
	return sleep(ctx, pause)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// exchange makes a request until there is a 2xx answer, as long as repeats are safe and there is time. inDoubt
// is true when the request may have run although there is an error.
func (c *Client) exchange(ctx context.Context, r request) (rep reply, inDoubt bool, err error) {
	var t trouble
	for {
		rep, err := c.once(ctx, r)
		if err == nil && rep.status/100 == 2 {
			return rep, false, nil
		}
		safe := false
		switch {
		case err != nil:
			safe = isDial(err)
			if !safe {
				inDoubt = true
			}
			if ctx.Err() != nil {
				return reply{}, inDoubt, fmt.Errorf("client: %s: %w", r.path, ctx.Err())
			}
			if _, ok := errors.AsType[*agl.Error](err); ok {
				return reply{}, inDoubt, err
			}
			err = agl.Errorf(agl.CodeUnavailable, "client: %s: %w", r.path, err)
		case rep.status == http.StatusTooManyRequests || rep.status == http.StatusServiceUnavailable:
			// The server says that it did not take the request (RFC 6585 §4, RFC 9110 §15.6.4).
			safe = true
			err = rep.problem(r.path)
		case rep.status >= 500 || rep.status == http.StatusRequestTimeout || rep.status == http.StatusTooEarly:
			inDoubt = true
			err = rep.problem(r.path)
		default:
			// The server refused it. If an earlier try was lost, that one may be why.
			inDoubt = inDoubt && (rep.status == http.StatusConflict || rep.status == http.StatusNotFound)
			return rep, inDoubt, mediaProblem(rep, rep.problem(r.path))
		}
		if !safe && !r.repeat {
			return rep, inDoubt, err
		}
		if err := t.again(ctx, c, r, rep, err); err != nil {
			return rep, inDoubt, err
		}
	}
}

// isDial reports whether no connection was made, so that no server has seen the request.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// mediaError is an answer 415: the server does not read what it was sent.
type mediaError struct{ error }

func (e *mediaError) Unwrap() error { return e.error }

func mediaProblem(rep reply, err error) error {
	if rep.status == http.StatusUnsupportedMediaType {
		return &mediaError{err}
	}
	return err
}

// mostDetail bounds what messages repeat of a server's: some echo the request.
const mostDetail = 400

// problem is the error of an answer that is none.
func (r reply) problem(path string) error {
	var body struct {
		Detail jsontext.Value `json:"detail"`
		Error  string         `json:"error"`
		Code   string         `json:"code"`
	}
	detail := ""
	if json.Unmarshal(r.body, &body) == nil {
		detail = body.Error
		if body.Detail != nil && json.Unmarshal(body.Detail, &detail) != nil {
			detail = string(body.Detail)
		}
	} else {
		detail = string(r.body)
	}
	code := agl.Code(body.Code)
	if !known(code) {
		code = statusCode(r.status)
	}
	return agl.Errorf(code, "client: %s: %d %s: %s", path, r.status, http.StatusText(r.status), short(detail))
}

func short(s string) string {
	if len(s) > mostDetail {
		return s[:mostDetail] + "…"
	}
	return s
}

func known(code agl.Code) bool {
	switch code {
	case agl.CodeInvalid, agl.CodeNotFound, agl.CodeIllegalState, agl.CodeConflict, agl.CodeEvicted, agl.CodeExhausted,
		agl.CodeUnavailable, agl.CodeUnauthorized, agl.CodeUnimplemented, agl.CodeInternal:
		return true
	}
	return false
}

func statusCode(status int) agl.Code {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return agl.CodeUnauthorized
	case status == http.StatusNotFound:
		return agl.CodeNotFound
	case status == http.StatusMethodNotAllowed:
		return agl.CodeUnimplemented
	case status == http.StatusConflict:
		return agl.CodeConflict
	case status == http.StatusGone:
		return agl.CodeEvicted
	case status == http.StatusTooManyRequests:
		return agl.CodeExhausted
	case status == http.StatusInternalServerError:
		// The server is there: it fails at this request, and some do for ever.
		return agl.CodeInternal
	case status == http.StatusRequestTimeout || status == http.StatusTooEarly || status >= 500:
		return agl.CodeUnavailable
	case status >= 400:
		return agl.CodeInvalid
	}
	return agl.CodeInternal
}
