package upstream

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// probeAll requests the health URLs of all backends periodically.
func (p *Pool) probeAll(ctx context.Context) {
	ticker := time.Tick(p.cfg.Health.ProbeInterval)
	for {
		var round sync.WaitGroup
		p.models.Load().backends(func(b *backend) {
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

func (p *Pool) probe(ctx context.Context, b *backend) {
	asking, cancel := context.WithTimeout(ctx, p.cfg.Health.ProbeTimeout)
	defer cancel()
	err := p.control(asking, http.MethodGet, b.health, b)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		if b.state.missed.Swap(0) >= maxMissed {
			p.cfg.Logger.Info("backend is back", "model", b.Name, "backend", b.url())
		}
		return
	}
	if b.state.missed.Add(1) == maxMissed {
		p.cfg.Logger.Warn("backend fails its health probe", "model", b.Name, "backend", b.url(), "error", err)
	}
}
