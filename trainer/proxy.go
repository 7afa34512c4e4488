package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/proxy"
)

// ProxyConfig configures a [Proxy].
type ProxyConfig struct {
	// Config is the proxy's own. Spans comes from the run's store; PublicURL,
	// when it is empty, from where the proxy listens.
	proxy.Config
	// Listen is the address to serve on; empty is a free port of 127.0.0.1.
	Listen string
	// Resource is the name of the proxy among the resources; empty is "llm".
	Resource string
	// Model is what agents are told to ask for; empty is the only model there is.
	Model string
	// Sampling are the sampling parameters of the resource, an object; nil is {}.
	Sampling jsontext.Value
}

// Proxy is an LLM proxy that lives as long as a run of a trainer. It can be
// handed to an algorithm before the run begins: as a flusher, and to swap
// models.
type Proxy struct {
	cfg   ProxyConfig
	meter meter

	mu      sync.Mutex
	models  []proxy.Model
	running *runningProxy // nil before and after a run
}

type runningProxy struct {
	gateway *proxy.Proxy
	server  *http.Server
	served  chan error // the end of Serve; closed after it
}

// NewProxy makes a proxy for [Config]. It starts nothing.
func NewProxy(cfg ProxyConfig) *Proxy {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.Resource == "" {
		cfg.Resource = "llm"
	}
	return &Proxy{cfg: cfg, models: cfg.Models}
}

// Flush returns when every model call that was begun for the rollouts is
// stored. See proxy.Proxy.
func (p *Proxy) Flush(ctx context.Context, rolloutIDs []string) error {
	running := p.now()
	if running == nil {
		return errNotRunning()
	}
	return running.gateway.Flush(ctx, rolloutIDs)
}

// FlushAttempt is Flush for the calls of one attempt. See proxy.Proxy.
func (p *Proxy) FlushAttempt(ctx context.Context, rolloutID, attemptID string) error {
	running := p.now()
	if running == nil {
		return errNotRunning()
	}
	return running.gateway.FlushAttempt(ctx, rolloutID, attemptID)
}

// Usage is what the recorded calls have used so far, over all runs of this Proxy.
func (p *Proxy) Usage() Usage { return p.meter.read() }

// Token is the bearer token of calls that belong to no attempt; empty is none.
func (p *Proxy) Token() string { return p.cfg.Token }

// Pause keeps calls from the engines while their weights change. See
// proxy.Proxy.
func (p *Proxy) Pause(ctx context.Context, mode proxy.PauseMode) error {
	running := p.now()
	if running == nil {
		return errNotRunning()
	}
	return running.gateway.Pause(ctx, mode)
}

// Resume ends a pause. See proxy.Proxy.
func (p *Proxy) Resume(ctx context.Context) error {
	running := p.now()
	if running == nil {
		return errNotRunning()
	}
	return running.gateway.Resume(ctx)
}

// SetControl overrides what the calls of a rollout ask for and bounds them; nil
// goes back to what the configuration says. See proxy.Proxy.
func (p *Proxy) SetControl(rolloutID string, control *proxy.Control) error {
	running := p.now()
	if running == nil {
		return errNotRunning()
	}
	return running.gateway.SetControl(rolloutID, control)
}

// SetModels replaces the list of models: calls that run end where they began,
// later ones go by the new list. Before a run it sets what the run begins with.
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

func errNotRunning() error {
	return agl.Errorf(agl.CodeUnavailable, "the LLM proxy of the trainer is not running in this process")
}

// start serves the proxy over a store and returns it as a resource.
func (p *Proxy) start(ctx context.Context, spans proxy.Spans, log *slog.Logger) (agl.NamedResource, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != nil {
		return agl.NamedResource{}, agl.Errorf(agl.CodeIllegalState, "it serves another run already")
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", p.cfg.Listen)
	if err != nil {
		return agl.NamedResource{}, fmt.Errorf("listen on %s: %w", p.cfg.Listen, err)
	}
	cfg := p.cfg.Config
	cfg.Spans, cfg.Models = p.meter.over(spans), p.models
	if cfg.Logger == nil {
		cfg.Logger = log
	}
	if cfg.PublicURL == "" {
		cfg.PublicURL = "http://" + listener.Addr().String() + "/v1"
	}
	gateway, err := proxy.New(cfg)
	if err != nil {
		return agl.NamedResource{}, errors.Join(err, listener.Close())
	}
	resource, err := gateway.AsResource(p.cfg.Model, p.cfg.Sampling)
	if err != nil {
		return agl.NamedResource{}, errors.Join(err, listener.Close(), gateway.Close(ctx))
	}
	r := &runningProxy{
		gateway: gateway,
		server:  httpserver.New(gateway, log),
		served:  make(chan error, 1),
	}
	go func() {
		defer close(r.served)
		if err := r.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.served <- fmt.Errorf("serve: %w", err)
		}
	}()
	p.running = r
	log.Info("LLM proxy listens", "url", cfg.PublicURL)
	return agl.NamedResource{Name: p.cfg.Resource, Resource: resource}, nil
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
	err := r.gateway.Close(ctx)
	if closing := r.server.Shutdown(ctx); closing != nil {
		err = errors.Join(err, closing, r.server.Close())
	}
	return errors.Join(err, <-r.served)
}
