// Package upstream sends calls to the backends of models and returns their replies.
//
//	pool, err := upstream.New(upstream.Config{Models: []upstream.Model{{Name: "qwen", BaseURL: "http://127.0.0.1:8000/v1"}}})
//	pool.Start(ctx)
//	defer pool.Close()
//	reply, err := pool.Send(ctx, &upstream.Request{Model: "qwen", Agent: r, Message: plan})
//	defer func() { reply.Close(tokens) }()
//
// [Pool.Send] waits while the proxy is paused, chooses a replica that is up, waits for
// its limits, forwards the request with an idle timeout, and retries as long as the
// agent has not received a byte.
//
// The package knows models and HTTP. It must not know to which attempt a request
// belongs, what it contains, or what is recorded of it.
package upstream

import (
	"context"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// New returns a pool. It refuses an invalid configuration with CodeInvalid, and
// starts nothing.
func New(cfg Config) (*Pool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Pool{cfg: cfg.withDefaults(), cache: newReplyCache(cfg.CacheBytes), buffers: sync.Pool{New: func() any { return new([]byte) }}}
	p.gate = gate{queue: p.cfg.PauseQueue, timeout: p.cfg.PauseTimeout, inside: make(map[*passage]struct{})}
	if p.cfg.Transport == nil {
		p.own = NewTransport()
		p.cfg.Transport = p.own
	}
	return p, p.SetModels(cfg.Models)
}

// Start starts the health probes, until Close or the end of ctx. Call it once.
func (p *Pool) Start(ctx context.Context) {
	ctx, p.cancel = context.WithCancel(ctx)
	p.probes.Go(func() { p.probeAll(ctx) })
}

// Close ends the probes and closes idle connections. All calls must have ended.
func (p *Pool) Close() {
	if p.cancel != nil {
		p.cancel()
		p.probes.Wait()
	}
	if p.own != nil {
		p.own.CloseIdleConnections()
	}
}

// SetModels replaces the list of models. Running calls end on the backends that they
// began on; every later call sees the new list. An invalid list is refused with
// CodeInvalid and changes nothing. An empty list is allowed.
func (p *Pool) SetModels(models []Model) error {
	p.swap.Lock()
	defer p.swap.Unlock()
	t, err := newTable(models, p.models.Load())
	if err != nil {
		return err
	}
	t.backends(func(b *backend) { b.state.limits.configure(b.Limits) })
	p.models.Store(t)
	return nil
}

// Models returns the list of models as it was last set.
func (p *Pool) Models() []Model { return slices.Clone(p.models.Load().models) }

// Names returns the names of the models in the order of the list.
func (p *Pool) Names() []string { return p.models.Load().names() }

// Pins reports whether a model has backends for certain resources; see Model.Resources.
func (p *Pool) Pins() bool {
	return slices.ContainsFunc(p.models.Load().models, func(m Model) bool { return m.Resources != "" })
}

// Pinned returns the Request.Model of calls by rollouts that were enqueued with these
// resources, by the model that the agent asks for. A model that is not in the map is used
// under its own name.
func (p *Pool) Pinned(resources string) map[string]string { return p.models.Load().pinned(resources) }

// Find returns nil if the model exists, and otherwise the *openai.Error that answers its
// calls.
func (p *Pool) Find(model string) error {
	_, err := p.models.Load().group(model)
	return err
}

// Price returns the highest price of the replicas of a [Request.Model]; nil if one of them has no price.
func (p *Pool) Price(model string) *Price {
	g := p.models.Load().groups[model]
	if g == nil {
		return nil
	}
	highest := &Price{}
	for _, b := range g.replicas {
		if b.Price == nil {
			return nil
		}
		highest.Prompt, highest.Completion = max(highest.Prompt, b.Price.Prompt), max(highest.Completion, b.Price.Completion)
	}
	return highest
}

// Backend is the present state of a backend.
type Backend struct {
	Model   string
	URL     string // without a password
	Version string
	Up      bool  // it gets calls
	Calls   int64 // running on it or waiting for it
	Tries   int64 // requests sent to it
}

// Backends returns the state of every backend in the order of the list.
func (p *Pool) Backends() []Backend {
	var list []Backend
	now := time.Now()
	p.models.Load().backends(func(b *backend) {
		list = append(list, Backend{b.Name, b.url(), b.Version, b.state.downFor(now) == 0, b.state.load.Load(), b.state.tries.Load()})
	})
	return list
}

// CacheBytes returns the estimated memory of the reply cache.
func (p *Pool) CacheBytes() int64 { return p.cache.size() }

// PauseState returns whether the proxy is paused, and how many calls wait or run.
func (p *Pool) PauseState() PauseState { return p.gate.state() }

// Pause keeps calls from the backends until [Pool.Resume]; an empty mode is
// PauseHold. PauseDrain and PauseAbort return when no call is at a backend, or with
// CodeUnavailable when ctx ends first; the proxy stays paused then. After that every
// Model.PauseURL is requested; an *EnginesError tells which requests failed. A pause
// of a paused proxy changes the mode. If the proxy is resumed meanwhile, the error is
// CodeConflict, and no engine stays paused.
func (p *Pool) Pause(ctx context.Context, mode PauseMode) error {
	switch mode {
	case "":
		mode = PauseHold
	case PauseHold, PauseReject, PauseDrain, PauseAbort:
	default:
		return agl.Errorf(agl.CodeInvalid, "mode: got %q, must be %q, %q, %q or %q", string(mode), PauseHold, PauseReject, PauseDrain, PauseAbort)
	}
	empty := p.gate.close(mode)
	p.cfg.Logger.InfoContext(ctx, "paused", "mode", string(mode))
	select {
	case <-empty:
	case <-ctx.Done():
		return agl.Errorf(agl.CodeUnavailable, "pause: %d calls are still running: %w", p.PauseState().Running, context.Cause(ctx))
	}
	p.posting.Lock()
	defer p.posting.Unlock()
	if p.PauseState().Mode == "" {
		return agl.Errorf(agl.CodeConflict, "pause: the proxy was resumed before it was paused")
	}
	return p.postAll(ctx, func(b *backend) *url.URL { return b.pause })
}

// Resume requests every Model.ResumeURL and then lets calls pass again, waiting
// calls first. An *EnginesError tells which requests failed.
func (p *Pool) Resume(ctx context.Context) error {
	p.posting.Lock()
	defer p.posting.Unlock()
	err := p.postAll(ctx, func(b *backend) *url.URL { return b.resume })
	p.gate.open()
	p.cfg.Logger.InfoContext(ctx, "resumed")
	return err
}
