package client

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/zstd"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

// transport makes requests to one server.
type transport struct {
	cfg  Config // with defaults
	base string
	http http.Client
	zstd *zstd.Encoder
	// encoding is the engines.Encoding of forward_backward and of results: Auto until the server has shown what it takes.
	encoding atomic.Value
	begun    atomic.Bool // a request has ended otherwise than by a refused certificate

	mu      sync.Mutex
	outages map[string]outage // by path
	served  map[string]bool   // the paths at which the engine has answered 2xx
}

func newTransport(cfg Config) (*transport, error) {
	base, err := cfg.baseURL()
	if err != nil {
		return nil, err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, invalid("%w", err)
	}
	t := &transport{cfg: cfg, base: base, http: http.Client{Transport: cfg.Transport, CheckRedirect: httpserver.SameMethod}, zstd: encoder, outages: map[string]outage{}, served: map[string]bool{}}
	t.encoding.Store(cfg.Encoding)
	return t, nil
}

// settleEncoding sets the encoding if it is still open.
func (t *transport) settleEncoding(e engines.Encoding) { t.encoding.CompareAndSwap(engines.Auto, e) }

// request is one request. The zero method is POST, the zero media types are JSON.
type request struct {
	method  string
	path    string // below wire.Prefix
	message any    // sent as JSON
	body    []byte // in place of message
	media   string // of the body
	zstd    bool   // the body is compressed
	accept  string // media type of the result
	// preferResult asks for the result in the answer to the submit.
	preferResult bool
	// repeatable is true when running the request twice does no harm.
	repeatable bool
	// followed is true when another call was submitted before the result of this one was there.
	followed bool
	// retryFor shortens Config.RetryFor; zero leaves it.
	retryFor time.Duration
}

// reply is a response with any status.
type reply struct {
	status     int
	media      string
	retryAfter time.Duration // zero if the response has no Retry-After header
	body       []byte
}

// maxResponse bounds the body of a response, in bytes.
const maxResponse = 256 << 20

// send makes a request once.
func (t *transport) send(ctx context.Context, r request) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.RequestTimeout)
	defer cancel()
	if r.message != nil {
		var err error
		if r.body, err = json.Marshal(r.message); err != nil {
			return reply{}, invalid("%s: %w", r.path, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(r.method, http.MethodPost), t.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return reply{}, invalid("%s: %w", r.path, err)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", cmp.Or(r.media, wire.JSONType))
	}
	if r.zstd {
		req.Header.Set("Content-Encoding", "zstd")
	}
	req.Header.Set("Accept", cmp.Or(r.accept, wire.JSONType))
	if r.preferResult {
		req.Header.Set(wire.PreferHeader, wire.PreferResult)
	}
	if t.cfg.APIKey != "" {
		req.Header.Set(wire.KeyHeader, t.cfg.APIKey)
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	t.begun.Store(true)
	defer resp.Body.Close()
	if redirected := httpserver.Redirected(req, resp, "the engine"); redirected != "" {
		return reply{}, invalid("%s: %s", r.path, redirected)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return reply{}, err
	}
	if len(body) > maxResponse {
		return reply{}, agl.Errorf(agl.CodeInternal, "client: %s: the response is larger than %d bytes", r.path, maxResponse)
	}
	out := reply{status: resp.StatusCode, body: body}
	out.media, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	out.retryAfter = backoff.RetryAfter(resp.Header, time.Now())
	if t.absent(r.path, out) {
		out.status, out.body = http.StatusBadGateway, fmt.Appendf(nil, "not the engine, but something in between answered %s: %s", resp.Status, body)
	}
	return out, nil
}

// absent reports whether something in between has answered, such as a load balancer that has no engine behind it for a moment: the engine has
// answered at this path before, and its own refusals are JSON. It notes the paths at which the engine answers.
func (t *transport) absent(path string, rep reply) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case rep.status/100 == 2:
		t.served[path] = true
	case rep.status == http.StatusNotFound, rep.status == http.StatusMethodNotAllowed:
		return t.served[path] && !jsontext.Value(rep.body).IsValid()
	}
	return false
}

// read decodes the body of a successful reply to a request for path.
func (r reply) read(path string, out any) error {
	if err := json.Unmarshal(r.body, out); err != nil {
		return agl.Errorf(agl.CodeInternal, "client: %s: the response %.100q does not follow the protocol: %w", path, r.body, err)
	}
	return nil
}

// problem is the error of a reply whose status is not 2xx.
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
	return agl.Errorf(wire.Code(r.status, body.Code), "client: %s: %d %s: %s", path, r.status, http.StatusText(r.status), shorten(detail))
}

// maxDetail bounds what error messages quote of a server's, in bytes: some echo the whole request.
const maxDetail = 400

func shorten(s string) string {
	if len(s) > maxDetail {
		return s[:maxDetail] + "…"
	}
	return s
}
