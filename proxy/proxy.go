package proxy

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
)

// Proxy is the gateway, an http.Handler. Make it with [New], end it with
// [Proxy.Close].
//
//	POST /rollout/{id}/attempt/{id}/v1/chat/completions   recorded, and so are
//	                                v1/completions        the others below it
//	                                v1/responses
//	                                v1/messages           of Anthropic's clients
//	POST /v1/chat/completions and so on                   not recorded
//	POST /v1/messages/count_tokens                        see docs
//	POST /v1/embeddings, /v1/…                            passed through by the body's model
//	GET  /v1/models, /v1/models/{name}                    the model names
//	GET  /health
//	POST /rollout/{id}/attempt/{id}/flush                 FlushAttempt
//	GET  /metrics                                         for Prometheus
//	POST /admin/flush, GET and PUT /admin/models, …       see [Client]
//
// The /v1 may be left out everywhere, and the prefix stands before any of the
// OpenAI paths.
type Proxy struct {
	cfg       Config
	models    atomic.Pointer[table]
	swap      sync.Mutex // held by SetModels
	prober    prober
	gate      gate
	controls  *controls
	cache     *cache // nil when there is none
	metrics   *metrics
	budget    *budget
	recorder  *recorder
	transport http.RoundTripper
	own       *http.Transport // nil when the transport is the caller's

	mu      sync.Mutex
	live    map[*call]struct{}
	closing bool
	idle    chan struct{} // closed once closing and nothing is live
}

// errClosing cancels the calls that are running when Close gives up on them.
var errClosing = errors.New("the proxy is shutting down")

// New returns a proxy. It refuses a configuration or a list of models that is
// wrong with CodeInvalid, and starts nothing before the first call.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg.withDefaults(), live: make(map[*call]struct{}), idle: make(chan struct{})}
	p.gate.queue, p.gate.inside = p.cfg.PauseQueue, make(map[*call]struct{})
	var err error
	if p.cache, err = newCache(p.cfg.CacheBytes); err != nil {
		return nil, err
	}
	p.metrics = newMetrics(p)
	p.controls = newControls(p.cfg.Control)
	if err := p.SetModels(cfg.Models); err != nil {
		return nil, err
	}
	p.budget = &budget{limit: p.cfg.CaptureBytes}
	if p.recorder, err = newRecorder(&p.cfg, p.budget); err != nil {
		return nil, err
	}
	p.transport = cfg.Transport
	if p.transport == nil {
		p.own = NewTransport()
		p.transport = p.own
	}
	return p, nil
}

// ServeHTTP answers one request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rt := parseRoute(r.URL.EscapedPath())
	switch {
	case generates(rt.path) && r.Method == http.MethodPost:
		p.serveCall(w, r, rt, rt.rolloutID != "" && p.cfg.Spans != nil)
	case r.Method == http.MethodGet && (rt.path == "/models" || strings.HasPrefix(rt.path, "/models/")):
		p.serveModels(w, rt.path)
	case rt.path == "/health" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		p.answer(w, http.StatusOK, []byte(`{"status":"ok"}`))
	case rt.rolloutID == "" && rt.path == "/metrics" && r.Method == http.MethodGet:
		p.serveMetrics(w, r)
	case rt.rolloutID == "" && strings.HasPrefix(rt.path, "/admin/"):
		p.serveAdmin(w, r, rt.path)
	case rt.rolloutID != "" && rt.path == "/flush" && r.Method == http.MethodPost:
		p.serveFlush(w, r, rt)
	case r.Method != http.MethodPost:
		p.refuse(w, r, fail(http.StatusNotFound, openai.InvalidRequestError, "unknown_url",
			"unknown request URL: "+r.Method+" "+r.URL.Path+"; the proxy serves POST …/chat/completions, …/completions, …/responses, …/embeddings and …/messages, and GET …/models"))
	default:
		p.serveCall(w, r, rt, false)
	}
}

// answer writes a JSON body.
func (p *Proxy) answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		p.cfg.Logger.Debug("answer not delivered", "error", err)
	}
}

func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, f *failure) {
	p.cfg.Logger.Debug("request refused", "method", r.Method, "path", r.URL.Path, "status", f.status, "message", f.body.Message)
	if err := f.write(w); err != nil {
		p.cfg.Logger.Debug("answer not delivered", "error", err)
	}
}

// enter counts a call in, unless the proxy is closing.
func (p *Proxy) enter(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return false
	}
	p.live[c] = struct{}{}
	return true
}

func (p *Proxy) leave(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, c)
	if p.closing && len(p.live) == 0 {
		close(p.idle)
	}
}

// Flush returns when the record of every call that has begun for the rollouts
// is stored; with no ids, of every call. It fails when records were lost, with
// the code of what the store said: of the newest attempt of each of these
// rollouts, or, with no ids, of any that no such Flush has reported before. It
// fails with CodeUnavailable when ctx ends first.
func (p *Proxy) Flush(ctx context.Context, rolloutIDs []string) error {
	return p.recorder.flush(ctx, scope{rolloutIDs: rolloutIDs})
}

// FlushAttempt is Flush for the calls of one attempt: it neither waits for those
// of others nor reports what they have lost.
func (p *Proxy) FlushAttempt(ctx context.Context, rolloutID, attemptID string) error {
	return p.recorder.flush(ctx, scope{rolloutIDs: []string{rolloutID}, attemptID: attemptID})
}

// Close refuses new calls, waits for those that are running, and stores their
// records. When ctx ends first it cancels what is left and returns an error;
// either way nothing of the proxy runs on. Further calls do nothing.
func (p *Proxy) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closing {
		p.mu.Unlock()
		return nil
	}
	p.closing = true
	if len(p.live) == 0 {
		close(p.idle)
	}
	p.mu.Unlock()
	var err error
	select {
	case <-p.idle:
		err = p.recorder.settle(ctx)
	case <-ctx.Done():
		p.mu.Lock()
		left := len(p.live)
		for c := range p.live {
			c.cancel(errClosing)
		}
		p.mu.Unlock()
		err = agl.Errorf(agl.CodeUnavailable, "close: %d calls were cut off: %w", left, context.Cause(ctx))
	}
	p.prober.stop()
	p.cache.close()
	err = errors.Join(err, p.recorder.close(ctx))
	if p.own != nil {
		p.own.CloseIdleConnections()
	}
	return err
}
