package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/proxy/admin"
	"github.com/agl-go/agl/proxy/capture"
	"github.com/agl-go/agl/proxy/exchange"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/quota"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/proxy/session"
	"github.com/agl-go/agl/proxy/upstream"
)

// Proxy is the gateway, an http.Handler. Create it with [New], start it with
// [Proxy.Start] and stop it with [Proxy.Close].
//
//	POST /rollout/{id}/attempt/{id}/v1/chat/completions   recorded, like the
//	                                v1/completions        three below it
//	                                v1/responses
//	                                v1/messages           of Anthropic's clients
//	POST /v1/chat/completions and so on                   not recorded
//	POST /v1/messages/count_tokens                        see docs
//	POST /v1/embeddings                                   forwarded by the body's model
//	POST paths of Config.ForwardPaths                     the same
//	GET  /v1/models, /v1/models/{name}                    the model names
//	GET  /health
//	POST /rollout/{id}/attempt/{id}/flush                 FlushAttempt
//	POST /rollout/{id}/attempt/{id}/emit                  a reward, message, object or exception; see docs
//	POST /v1/agl/sessions, /rl/start_session and so on    live programs, see Config.Sessions
//	GET  /metrics                                         for Prometheus
//	POST /admin/flush, GET and PUT /admin/models, …       see [Client]
//
// The /v1 may be left out everywhere, and the prefix may stand before any of the
// OpenAI paths.
type Proxy struct {
	cfg      Config
	guard    *httpserver.Guard
	keys     keys
	rules    rules
	budgets  budgets
	open     *access.Open // the calls of each caller
	upstream *upstream.Pool
	quota    *quota.Quota
	recorder *capture.Recorder
	exchange *exchange.Exchange
	running  *running
	unstored unstored
	metrics  *metrics
	admin    admin.Handler
	sessions *session.Manager // nil if none are recorded
	ignored  sync.Once        // for the warning that a call names a session and none are recorded
	unnamed  session.Seldom   // for the warning that the store neither finds nor starts the session that a call names
	// hung is when a call last waited in vain for the store to find its session, or began to wait again; nil if the last one had an answer
	hung     atomic.Pointer[time.Time]
	releases *releases
	pins     pins
	env      variables
	routes   map[string]endpoint
}

// New returns a proxy. It refuses an invalid configuration or list of models with
// CodeInvalid, and starts nothing.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	p := &Proxy{cfg: cfg, keys: keys{cfg.KeySecret, cfg.Token, cfg.Access, cfg.RequireKeys, cfg.Revoked, cfg.Failed, cfg.LookupEnv}, quota: quota.New(cfg.Control), running: newRunning(), open: access.NewOpen(access.MaxOpen)}
	var err error
	if p.guard, err = httpserver.NewGuard(nil, nil); err != nil {
		return nil, err
	}
	if p.upstream, err = upstream.New(cfg.upstream()); err != nil {
		return nil, err
	}
	if p.recorder, err = capture.New(cfg.capture(p.cancelled, p.unknown)); err != nil {
		return nil, err
	}
	p.rules.quota = p.quota
	p.pins.rollouts, p.pins.upstream = cfg.Rollouts, p.upstream
	p.budgets.project, p.budgets.upstream = cfg.Project, p.upstream
	if cfg.Budgets != nil {
		p.budgets.meter = access.NewMeter(cfg.Budgets)
	}
	p.metrics = newMetrics(p.upstream, p.recorder)
	calls := callLog{cfg.Logger, cfg.LogCalls, cfg.LogContents}
	p.exchange = exchange.New(exchange.Config{
		Upstream: p.upstream, Quota: p.quota, Recorder: p.recorder, MaxRequestBytes: cfg.MaxRequestBytes, MaxReplyBytes: cfg.MaxReplyBytes,
		Ended: func(ctx context.Context, in *record.Input, used exchange.Usage) {
			p.metrics.call(in, used)
			calls.write(ctx, in, used)
		},
	})
	p.env.allowed = cfg.AllowEnv
	p.env.name(cfg.Models)
	p.releases = &releases{source: cfg.Sessions.Releases, models: p.upstream.Names, log: cfg.Logger}
	if p.sessions, err = p.newSessions(); err != nil {
		return nil, err
	}
	p.routes = p.table()
	p.admin = admin.Handler{Proxy: p, Token: cfg.Token, Access: cfg.Access, Failed: cfg.Failed, Audit: cfg.Audit, Metrics: p.metrics.handler, Logger: cfg.Logger}
	return p, nil
}

// NewTransport returns the transport of a proxy whose Config has none. It is tuned
// for many calls to few hosts.
func NewTransport() *http.Transport { return upstream.NewTransport() }

// ServeHTTP answers one request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := p.guard.Check(r); err != nil { // a web page must not call models or operate the proxy
		p.refuse(w, r, openai.NewError(http.StatusForbidden, openai.InvalidRequestError, "cross_origin", err.Error()))
		return
	}
	if p.rebound(r) {
		p.refuse(w, r, openai.NewError(http.StatusForbidden, openai.InvalidRequestError, "cross_origin",
			fmt.Sprintf("header Host: got %q, and web pages reach a proxy that asks for no key only under addresses, localhost and its public_url", r.Host)))
		return
	}
	rt := parseRoute(r.URL.EscapedPath())
	if rt.rolloutID == "" && (rt.path == "/metrics" && r.Method == http.MethodGet || strings.HasPrefix(rt.path, "/admin/")) {
		p.admin.Serve(w, r, rt.path) // these routes declare their scopes there
		return
	}
	to := p.endpoint(r, rt)
	switch {
	case rt.rolloutID != "":
	case p.sessions == nil:
		if p.refuseSession(w, r, to) {
			return
		}
	case p.serveSession(w, r, rt, to):
		return
	}
	if to.serve == nil {
		p.refuse(w, r, errUnknownURL(r))
		return
	}
	by, refused := p.keys.authorize(r, rt, to.scope)
	if refused != nil {
		p.refuse(w, r, refused)
		return
	}
	rt.charge(&p.budgets, r, by)
	if rt.rolloutID == "" {
		rt.models = p.releases.stable()
	}
	to.serve(w, r, rt)
}

// rebound reports whether a request to a proxy that requires no keys may come from a web page whose
// host name was pointed to the proxy (DNS rebinding).
func (p *Proxy) rebound(r *http.Request) bool {
	if p.keys.secret != "" || p.keys.always || !httpserver.Rebound(r) {
		return false
	}
	public, err := url.Parse(p.cfg.PublicURL)
	return err != nil || !strings.EqualFold(public.Host, r.Host)
}

// serveCall serves a call of a model.
func (p *Proxy) serveCall(w http.ResponseWriter, r *http.Request, rt route) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	call, refused := p.running.enter(attemptKey{rt.rolloutID, rt.attemptID}, nil, cancel)
	if refused != nil {
		p.refuse(w, r, refused)
		return
	}
	defer call.leave()
	leaveOpen, err := p.open.Enter(rt.who)
	if err != nil {
		p.refuse(w, r, admin.AccessError(err))
		return
	}
	defer leaveOpen()
	ctx, stop := access.Watch(ctx, rt.gone)
	defer stop()
	if rt.rolloutID != "" && rt.models == nil {
		if rt.models, refused = p.pins.models(ctx, rt.rolloutID); refused != nil {
			p.refuse(w, r, refused)
			return
		}
	}
	p.exchange.Serve(withKey(ctx, rt.subject), w, r, exchange.Origin{
		RolloutID: rt.rolloutID, AttemptID: rt.attemptID, Path: rt.path, Cancel: cancel, Models: rt.models, Admit: p.rules.admit(rt), Allowance: rt.allowance,
		Turn: r.Header.Get(HeaderTurn), TurnType: r.Header.Get(HeaderTurnType),
	})
}

func (p *Proxy) answerJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // what it answers are valid strings
		p.cfg.Logger.Error("answer not written", "error", err)
		return
	}
	p.answer(w, status, body)
}

func (p *Proxy) answer(w http.ResponseWriter, status int, body []byte) {
	if err := exchange.WriteJSON(w, status, body); err != nil {
		p.cfg.Logger.Debug("answer not delivered", "error", err)
	}
}

func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, e *openai.Error) {
	p.cfg.Logger.Debug("request refused", "method", r.Method, "path", r.URL.Path, "status", e.Status, "message", e.Message)
	if err := exchange.WriteError(w, e); err != nil {
		p.cfg.Logger.Debug("answer not delivered", "error", err)
	}
}

// Start starts the background work: writing records and probing backends. It runs until
// [Proxy.Close] or until ctx ends; records that are neither stored nor spooled by then
// are lost. Before Start, calls are refused. Calling it again does nothing.
func (p *Proxy) Start(ctx context.Context) {
	if p.running.start() {
		p.recorder.Start(ctx)
		p.upstream.Start(ctx)
		if p.sessions != nil {
			p.releases.start(ctx)
			p.sessions.Start(ctx)
		}
	}
}

// SetModels replaces the list of models; see [upstream.Pool.SetModels].
func (p *Proxy) SetModels(models []Model) error {
	err := p.upstream.SetModels(models)
	if err == nil {
		p.env.name(models)
	}
	return err
}

// SetModelsOf is SetModels for callers other than the operator, such as those of PUT /admin/models.
// It also refuses, with CodeInvalid, a key "env:NAME" unless the operator has named the variable for
// the same server or Config.AllowEnv has it.
func (p *Proxy) SetModelsOf(models []Model) error {
	if err := p.env.check(models); err != nil {
		return err
	}
	return p.upstream.SetModels(models)
}

// Models returns the list of models as it was last set.
func (p *Proxy) Models() []Model { return p.upstream.Models() }

// Backends returns the state of every backend in the order of the list.
func (p *Proxy) Backends() []Backend { return p.upstream.Backends() }

// Pause keeps calls from the backends until [Proxy.Resume]; see [upstream.Pool.Pause].
func (p *Proxy) Pause(ctx context.Context, mode PauseMode) error { return p.upstream.Pause(ctx, mode) }

// Resume lets calls pass again; see [upstream.Pool.Resume].
func (p *Proxy) Resume(ctx context.Context) error { return p.upstream.Resume(ctx) }

// PauseState returns whether the proxy is paused, and how many calls wait or run.
func (p *Proxy) PauseState() PauseState { return p.upstream.PauseState() }

// SetControl sets the control of a rollout, for later calls; nil restores
// Config.Control. The error is CodeInvalid for an invalid control, and CodeExhausted if
// there are too many.
func (p *Proxy) SetControl(rolloutID string, control *Control) error {
	return p.quota.Set(rolloutID, control)
}

// Control returns what the calls of a rollout may do.
func (p *Proxy) Control(rolloutID string) Control { return p.quota.Get(rolloutID) }

// Reload replaces the models and Config.Control together: if either is invalid
// (CodeInvalid), both stay as they were.
func (p *Proxy) Reload(models []Model, control Control) error {
	if err := control.Validate(); err != nil {
		return err
	}
	if err := p.SetModels(models); err != nil {
		return err
	}
	p.quota.SetBase(&control)
	return nil
}

// AttemptKey returns the virtual key of an attempt, for agents that do not get a
// resource of this proxy: with Config.KeySecret set, their calls need it. It is valid
// for ttl, or a week if that is 0, and for this attempt only.
func (p *Proxy) AttemptKey(rolloutID, attemptID string, ttl time.Duration) (string, error) {
	return p.keys.attempt(rolloutID, attemptID, ttl)
}

// AsResource returns the resource through which agents call a model of the proxy,
// under Config.PublicURL. An empty name stands for the only model of the list. sampling
// is a JSON object of sampling parameters, or nil. A named model need not be in the list
// yet. With Config.KeySecret the resource has a run key, valid for a week, from which
// agl.ProxyLLM.ForAttempt makes the key of each attempt.
func (p *Proxy) AsResource(model string, sampling []byte) (agl.ProxyLLM, error) {
	if p.cfg.PublicURL == "" {
		return agl.ProxyLLM{}, agl.Errorf(agl.CodeInvalid, "PublicURL: empty, must be set for the proxy to be a resource")
	}
	if model == "" {
		names := p.upstream.Names()
		if len(names) != 1 {
			return agl.ProxyLLM{}, agl.Errorf(agl.CodeInvalid, "model: none given, and the proxy serves %d (%s); name one", len(names), strings.Join(names, ", "))
		}
		model = names[0]
	}
	var key agl.Null[string]
	if p.cfg.KeySecret != "" {
		run, err := p.keys.run(0)
		if err != nil {
			return agl.ProxyLLM{}, err
		}
		key = agl.Some(run)
	}
	return agl.ProxyLLM{LLM: agl.LLM{
		APIKey:             key,
		Endpoint:           strings.TrimRight(p.cfg.PublicURL, "/"),
		Model:              model,
		SamplingParameters: sampling,
	}}, nil
}

// CancelAttempt cancels the running calls of an attempt, also at their backends, and
// refuses further ones with 410. It returns how many were running. The parts of replies
// that had arrived are recorded. The proxy does the same by itself when the store reports
// that an attempt was cancelled. The last 262,144 cancelled attempts are remembered.
func (p *Proxy) CancelAttempt(rolloutID, attemptID string) (running int) {
	running, _ = p.running.cancel(attemptKey{rolloutID, attemptID})
	return running
}

// cancelled is called when the store reports that an attempt was cancelled.
func (p *Proxy) cancelled(rolloutID, attemptID string) {
	if p.sessions != nil {
		p.sessions.Cancelled(rolloutID)
	}
	if _, first := p.running.cancel(attemptKey{rolloutID, attemptID}); first {
		p.cfg.Logger.Info("attempt cancelled", "rollout", rolloutID, "attempt", attemptID)
	}
}

// unknown is called when the store does not know an attempt that a record belongs to. A session that was deleted, such as by agl
// forget, ends, and its running calls with it. It is not refused for good: a project that was archived for a while does not know its
// sessions either. Other attempts may be unknown from the beginning; their calls are served.
func (p *Proxy) unknown(rolloutID, attemptID string) {
	if p.sessions != nil && p.sessions.Cancelled(rolloutID) {
		p.running.interrupt(attemptKey{rolloutID, attemptID})
		p.cfg.Logger.Info("session deleted", "rollout", rolloutID, "attempt", attemptID)
	}
}

// Flush returns when the record of every call that the rollouts have begun is stored;
// with no ids, of every call. It fails if records of the newest attempt of one of these
// rollouts were lost, or, with no ids, records that no such Flush has reported before: with the
// code of the store's error, or with CodeIllegalState for one that says that a retry may help.
// It fails with CodeUnavailable if ctx ends first.
func (p *Proxy) Flush(ctx context.Context, rolloutIDs []string) error {
	return p.recorder.Flush(ctx, capture.Scope{RolloutIDs: rolloutIDs})
}

// FlushAttempt is Flush for the calls of one attempt: it neither waits for the calls of
// other attempts nor reports their losses. It also waits for what the attempt has emitted,
// and fails with CodeIllegalState if the last emission was not stored.
func (p *Proxy) FlushAttempt(ctx context.Context, rolloutID, attemptID string) error {
	attempt := attemptKey{rolloutID, attemptID}
	emissions := p.running.emissions(attempt)
	if err := p.recorder.Flush(ctx, capture.Scope{RolloutIDs: []string{rolloutID}, AttemptID: attemptID}); err != nil {
		return err
	}
	for _, ended := range emissions {
		select {
		case <-ended:
		case <-ctx.Done():
			return agl.Errorf(agl.CodeUnavailable, "what the agent emits is not stored yet: %w", context.Cause(ctx))
		}
	}
	return p.unstored.err(attempt)
}

// Abort cancels the running calls, because the proxy ends and does not wait for them: agents that have received nothing get
// 503, and the records say that it was not the agents who left.
func (p *Proxy) Abort() { p.running.abort() }

// Close refuses new calls, waits for the running ones, and stores their records. If ctx
// ends first, it cancels the remaining calls and returns an error. Either way no goroutine
// of the proxy remains. Calling it again does nothing.
func (p *Proxy) Close(ctx context.Context) error {
	idle, first := p.running.close()
	if !first {
		return nil
	}
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = agl.Errorf(agl.CodeUnavailable, "close: %d calls were cancelled: %w", p.running.abort(), context.Cause(ctx))
	}
	if p.sessions != nil {
		p.sessions.Close()
		p.releases.close()
	}
	p.upstream.Close()
	if p.budgets.meter != nil {
		err = errors.Join(err, p.budgets.meter.Close(ctx))
	}
	return errors.Join(err, p.recorder.Close(ctx))
}
