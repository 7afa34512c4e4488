package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// Health says when a backend counts as down, so that calls go to other
// replicas, or are refused with 503 when there is none.
type Health struct {
	// Failures is how many calls in a row a backend may fail (no answer, 5xx, a
	// reply that breaks off, or silence for Config.IdleTimeout) before it gets
	// none; 0 is 5.
	Failures int
	// Rest is how long it then gets none, before a single call tries it again; 0
	// is 1 s. It doubles, up to MaxRest, 0 is 30 s, while that call fails, too.
	Rest, MaxRest time.Duration
	// ProbeInterval is how often a Model.HealthURL is asked; 0 is 5 s. Two bad
	// answers in a row take the backend out, a good one brings it back.
	ProbeInterval time.Duration
	// ProbeTimeout bounds each probe; 0 is 2 s.
	ProbeTimeout time.Duration
}

func (h Health) withDefaults() Health {
	orDefault(&h.Failures, 5)
	orDefault(&h.Rest, time.Second)
	orDefault(&h.MaxRest, 30*time.Second)
	orDefault(&h.ProbeInterval, 5*time.Second)
	orDefault(&h.ProbeTimeout, 2*time.Second)
	return h
}

func (h Health) check() error {
	for _, f := range [...]struct {
		name  string
		value int64
	}{
		{"Failures", int64(h.Failures)},
		{"Rest", int64(h.Rest)},
		{"MaxRest", int64(h.MaxRest)},
		{"ProbeInterval", int64(h.ProbeInterval)},
		{"ProbeTimeout", int64(h.ProbeTimeout)},
	} {
		if f.value < 0 {
			return agl.Errorf(agl.CodeInvalid, "Health.%s: got %d, must not be negative", f.name, f.value)
		}
	}
	return nil
}

// missedProbes take a backend out.
const missedProbes = 2

// prober asks backends how they are, from the first call on until stop.
type prober struct {
	once   sync.Once
	mu     sync.Mutex
	cancel context.CancelFunc // nil before the first call
	group  sync.WaitGroup
}

// start begins the probes. They outlive the request whose context this is.
func (r *prober) start(ctx context.Context, p *Proxy) {
	r.once.Do(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r.mu.Lock()
		r.cancel = cancel
		r.mu.Unlock()
		r.group.Go(func() { p.probe(ctx) })
	})
}

func (r *prober) stop() {
	r.once.Do(func() {}) // no call may start it any more
	r.mu.Lock()
	cancel := r.cancel
	r.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	r.group.Wait()
}

func (p *Proxy) probe(ctx context.Context) {
	ticker := time.NewTicker(p.cfg.Health.ProbeInterval)
	defer ticker.Stop()
	for {
		var round sync.WaitGroup
		for _, g := range p.models.Load().groups {
			for _, b := range g.replicas {
				if b.health != nil {
					round.Go(func() { p.probeOne(ctx, b) })
				}
			}
		}
		round.Wait()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *Proxy) probeOne(ctx context.Context, b *backend) {
	asking, cancel := context.WithTimeout(ctx, p.cfg.Health.ProbeTimeout)
	defer cancel()
	err := p.ask(asking, http.MethodGet, b.health, b)
	if ctx.Err() != nil {
		return
	}
	was := b.state.missed.Load()
	if err == nil {
		b.state.missed.Store(0)
		if was >= missedProbes {
			p.cfg.Logger.Info("backend is back", "model", b.Name, "backend", b.base.Redacted())
		}
		return
	}
	if b.state.missed.Add(1) == missedProbes {
		p.cfg.Logger.Warn("backend fails its health probe", "model", b.Name, "backend", b.base.Redacted(), "error", err)
	}
}

// ask makes a request to one of a backend's own URLs. Engines that read a body
// of a POST want an object.
func (p *Proxy) ask(ctx context.Context, method string, at *url.URL, b *backend) error {
	key, err := p.cfg.secret(b.APIKey)
	if err != nil {
		return err
	}
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("{}")
	}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		setKey(req.Header, b.API, key)
	}
	res, err := p.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 512))
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("HTTP %s: %s", res.Status, text)
	}
	return nil
}

// setKey puts a backend's key where its API looks for it.
func setKey(h http.Header, api API, key string) {
	switch api {
	case APIAzure:
		h.Set("Api-Key", key)
	case APIAnthropic:
		h.Set("X-Api-Key", key)
	case APIOpenAI:
		h.Set("Authorization", "Bearer "+key)
	}
}
