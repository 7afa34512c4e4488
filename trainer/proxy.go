package trainer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/collect"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/release"
)

// ProxyConfig configures a [Proxy].
type ProxyConfig struct {
	// Config is that of the proxy. The run sets Spans, Rollouts, the store of Sessions, what asks a store about keys, and PublicURL if it is
	// empty.
	proxy.Config
	// Listen is host:port; empty means a free port of 127.0.0.1.
	Listen string
	// CertFile and KeyFile, PEM, encrypt what it serves; empty does not. They are read again
	// when they change.
	CertFile, KeyFile string
	// Resource is the name of the proxy among the resources; empty means "llm".
	Resource string
	// Model is the model that agents are told to request; empty means the only one.
	Model string
	// KL measures how much likelier the tokens of a session were to the version that answered than to another one, for the guard of
	// releases; nil does not measure it. See release.MetricKL.
	KL func(ctx context.Context, version string, spans []agl.Span) (kl float64, ok bool, err error)
	// Sampling is an object, the sampling parameters of the resource; nil means {}.
	Sampling jsontext.Value
}

// Proxy is an LLM proxy that a trainer starts and stops with each run. An algorithm can
// be given it before the run begins, to flush records and to swap models.
type Proxy struct {
	cfg   ProxyConfig
	meter meter

	mu      sync.Mutex
	models  []proxy.Model
	running *runningProxy // nil before and after a run
}

var _ agl.AlgorithmProxy = (*Proxy)(nil)

type runningProxy struct {
	unwatch  func()
	releases proxy.Releases // nil for a store without
	gateway  *proxy.Proxy
	server   *httpserver.Running
	url      string // where this machine reaches it
}

// NewProxy makes a proxy for [Config]. It starts nothing.
func NewProxy(cfg ProxyConfig) *Proxy {
	cfg.Listen = cmp.Or(cfg.Listen, "127.0.0.1:0")
	cfg.Resource = cmp.Or(cfg.Resource, "llm")
	return &Proxy{cfg: cfg, models: cfg.Models}
}

// Flush returns when every model call that has begun for the rollouts is stored. See proxy.Proxy.
func (p *Proxy) Flush(ctx context.Context, rolloutIDs []string) error {
	return p.do(func(gateway *proxy.Proxy) error { return gateway.Flush(ctx, rolloutIDs) })
}

// FlushAttempt is Flush for the calls of one attempt. See proxy.Proxy.
func (p *Proxy) FlushAttempt(ctx context.Context, rolloutID, attemptID string) error {
	return p.do(func(gateway *proxy.Proxy) error { return gateway.FlushAttempt(ctx, rolloutID, attemptID) })
}

// Serves reports whether there is a model with a name.
func (p *Proxy) Serves(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.models, func(m proxy.Model) bool { return m.Name == name })
}

// Releases returns the releases of the run's store, as the proxy follows them; nil if the store has none, and before and
// after a run.
func (p *Proxy) Releases() proxy.Releases {
	if running := p.now(); running != nil {
		return running.releases
	}
	return nil
}

// Usage returns the usage of the recorded calls so far, over all runs of this Proxy.
func (p *Proxy) Usage() Usage { return p.meter.read() }

// Token returns the bearer token of calls that belong to no attempt; empty if there is none.
func (p *Proxy) Token() string { return p.cfg.Token }

// Pause holds calls back while the weights of the engines change. See proxy.Proxy.
func (p *Proxy) Pause(ctx context.Context, mode proxy.PauseMode) error {
	return p.do(func(gateway *proxy.Proxy) error { return gateway.Pause(ctx, mode) })
}

// URL implements [agl.AlgorithmProxy]; empty while the proxy does not run.
func (p *Proxy) URL() string {
	if running := p.now(); running != nil {
		return running.url
	}
	return ""
}

// Drain implements [agl.AlgorithmProxy].
func (p *Proxy) Drain(ctx context.Context) error { return p.Pause(ctx, proxy.PauseDrain) }

// Resume ends a pause. See proxy.Proxy.
func (p *Proxy) Resume(ctx context.Context) error {
	return p.do(func(gateway *proxy.Proxy) error { return gateway.Resume(ctx) })
}

// SetControl sets overrides and budgets for the calls of a rollout; nil restores
// those of the configuration. See proxy.Proxy.
func (p *Proxy) SetControl(rolloutID string, control *proxy.Control) error {
	return p.do(func(gateway *proxy.Proxy) error { return gateway.SetControl(rolloutID, control) })
}

// SetModels replaces the list of models. Running calls finish on the old list. Before
// a run it sets the list with which the run begins.
func (p *Proxy) SetModels(models []proxy.Model) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != nil {
		if err := p.running.gateway.SetModels(models); err != nil {
			return err
		}
	}
	p.models = models
	return nil
}

func (p *Proxy) now() *runningProxy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// do calls act with the proxy that runs now. It returns CodeUnavailable if none does.
func (p *Proxy) do(act func(gateway *proxy.Proxy) error) error {
	if running := p.now(); running != nil {
		return act(running.gateway)
	}
	return agl.Errorf(agl.CodeUnavailable, "the LLM proxy of the trainer is not running in this process")
}

// start serves the proxy over a store and returns it as a resource.
func (p *Proxy) start(ctx context.Context, spans proxy.Spans, log *slog.Logger) (agl.NamedResource, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != nil {
		return agl.NamedResource{}, agl.Errorf(agl.CodeIllegalState, "it already serves another run")
	}
	listener, err := httpserver.Listen(ctx, p.cfg.Listen, "name another, such as 127.0.0.1:0 for a free port")
	if err != nil {
		return agl.NamedResource{}, err
	}
	if p.cfg.CertFile != "" {
		encrypted, err := httpserver.TLS{CertFile: p.cfg.CertFile, KeyFile: p.cfg.KeyFile}.Listener(listener, log)
		if err != nil {
			return agl.NamedResource{}, agl.Errorf(agl.CodeInvalid, "CertFile: %w", errors.Join(err, listener.Close()))
		}
		listener = encrypted
	}
	cfg := p.cfg.Config
	cfg.Spans, cfg.Models = p.meter.over(spans), p.models
	cfg.Rollouts, _ = spans.(proxy.Rollouts)
	cfg.Sessions.Store, _ = spans.(agl.Store) // proxy.New refuses sessions without one
	cfg.Logger = cmp.Or(cfg.Logger, log)
	watcher, err := watcherOf(spans, cfg.Logger)
	if err != nil {
		return agl.NamedResource{}, errors.Join(err, listener.Close())
	}
	if watcher != nil {
		cfg.Sessions.Releases = watcher.Releases
		if p.cfg.KL != nil {
			watcher.KL = p.kl
		}
	} else {
		cfg.Sessions.Releases, _ = spans.(proxy.Releases) // a client, whose server decides
	}
	cfg.PublicURL = cmp.Or(cfg.PublicURL, httpserver.Scheme(listener)+"://"+listener.Addr().String()+"/v1")
	askStore(&cfg, spans)
	gateway, err := proxy.New(cfg)
	if err != nil {
		return agl.NamedResource{}, errors.Join(err, listener.Close())
	}
	resource, err := gateway.AsResource(p.cfg.Model, p.cfg.Sampling)
	if err != nil {
		return agl.NamedResource{}, errors.Join(err, listener.Close(), gateway.Close(ctx))
	}
	gateway.Start(context.WithoutCancel(ctx)) // until stop, which stores the records of an interrupted run, too
	unwatch := func() {}
	if watcher != nil && cfg.Sessions.IdleTimeout > 0 {
		unwatch = background.Start(context.WithoutCancel(ctx), watcher.Run)
	}
	p.running = &runningProxy{unwatch: unwatch, releases: cfg.Sessions.Releases, gateway: gateway, server: httpserver.Start(listener, gateway, log), url: execution.ClientURL(listener)}
	log.Info("LLM proxy listens", "url", cfg.PublicURL)
	return agl.NamedResource{Name: p.cfg.Resource, Resource: resource}, nil
}

// kl measures the divergence of a session from the stable version.
func (p *Proxy) kl(ctx context.Context, r *release.Release, spans []agl.Span) (kl float64, ok bool, err error) {
	name := cmp.Or(r.Stable.Model, r.Model)
	p.mu.Lock()
	i := slices.IndexFunc(p.models, func(m proxy.Model) bool { return m.Name == name })
	version := ""
	if i >= 0 {
		version = p.models[i].Version
	}
	p.mu.Unlock()
	if version == "" {
		return 0, false, agl.Errorf(agl.CodeNotFound, "the proxy does not know the version of %q", name)
	}
	return p.cfg.KL(ctx, version, spans)
}

// stop lets running calls finish while ctx lasts, and stores their records.
func (p *Proxy) stop(ctx context.Context) error {
	p.mu.Lock()
	r := p.running
	p.running = nil
	p.mu.Unlock()
	if r == nil {
		return nil
	}
	defer r.unwatch()
	return errors.Join(r.gateway.Close(ctx), r.server.Shutdown(ctx))
}

// askStore makes the proxy take the keys of a store and spend their budgets there, write its audit log to it, and read from it which keys
// of attempts are revoked, if the store supports that.
func askStore(cfg *proxy.Config, store any) {
	switch store := store.(type) {
	case interface {
		access.Teller
		access.Charger
		Keys() *access.Cache
		Revocations() *access.Revocations
	}: // a client, whose server keeps them
		cfg.Audit, cfg.Revoked, cfg.Access, cfg.Budgets = store, store.Revocations(), store.Keys(), store
	case agl.DocumentStore:
		keys := access.NewKeys(store)
		cfg.Audit, cfg.Revoked, cfg.Access, cfg.Budgets = ownAudit{access.NewAudit(store), keys}, keys.Revocations(), keys, keys
	}
}

// ownAudit is the audit log of a proxy in the process of its store.
type ownAudit struct {
	audit *access.Audit
	keys  *access.Keys
}

// RecordAct implements [access.Teller]. Without a key of the store the caller holds the token.
func (a ownAudit) RecordAct(ctx context.Context, key string, act access.Act) error {
	caller := access.Root()
	if access.IsKey(key) {
		var err error
		if caller, err = a.keys.Check(ctx, key); err != nil {
			return err
		}
	}
	act.By = caller.By()
	return a.audit.Record(ctx, &act)
}

// watcherOf returns the watcher that decides the releases of a store. It is nil for a client, whose
// server decides them, and for a store without releases.
func watcherOf(spans any, log *slog.Logger) (*release.Watcher, error) {
	engine, ok := spans.(collect.Store)
	if !ok {
		return nil, nil //nolint:nilnil // there are no releases
	}
	collector, err := collect.New(collect.Config{Store: engine, Logger: log})
	if err != nil {
		return nil, err
	}
	return &release.Watcher{Releases: release.New(engine), Collector: collector, Spans: engine, Logger: log}, nil
}
