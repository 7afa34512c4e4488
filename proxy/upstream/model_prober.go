package upstream

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// prober requests the health URLs of all backends periodically.
type prober struct {
	health   Health
	engines  engines
	backends func(visit func(b *backend))
	log      *slog.Logger
}

func (p *prober) run(ctx context.Context) {
	ticker := time.Tick(p.health.ProbeInterval)
	for {
		var round sync.WaitGroup
		p.backends(func(b *backend) {
			if b.health != nil {
				round.Go(func() { p.probe(ctx, b) })
			}
		})
		round.Wait()
		select {
		case <-ticker:
		case <-ctx.Done():
			return
		}
	}
}

func (p *prober) probe(ctx context.Context, b *backend) {
	asking, cancel := context.WithTimeout(ctx, p.health.ProbeTimeout)
	defer cancel()
	err := p.engines.request(asking, http.MethodGet, b.health, b)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		if b.state.missed.Swap(0) >= maxMissed {
			p.log.Info("backend is back", "model", b.Name, "backend", b.url())
		}
		return
	}
	if b.state.missed.Add(1) == maxMissed {
		p.log.Warn("backend fails its health probe", "model", b.Name, "backend", b.url(), "error", err)
	}
}
