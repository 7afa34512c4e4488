package access

import (
	"context"
	"sync"
	"time"
)

// ProjectLimits are the limits of a project, which are asked for at most once in StoreTTL. It
// is safe for concurrent use; a nil one has no limits.
type ProjectLimits struct {
	ask func(ctx context.Context) (Limits, error)

	mu    sync.Mutex
	known Limits
	err   error // of the last question
	until time.Time
}

// NewProjectLimits returns the limits that ask returns.
func NewProjectLimits(ask func(ctx context.Context) (Limits, error)) *ProjectLimits {
	return &ProjectLimits{ask: ask}
}

// Get returns the limits, as they were within the last StoreTTL. Those who ask at once wait for
// one answer.
func (p *ProjectLimits) Get(ctx context.Context) (Limits, error) {
	if p == nil {
		return Limits{}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.until) {
		return p.known, p.err
	}
	asked := time.Now()
	known, err := p.ask(context.WithoutCancel(ctx))
	if p.known, p.err, p.until = known, err, asked.Add(StoreTTL); err != nil { // whoever waited need not ask again
		p.until = time.Now().Add(StoreTTL)
	}
	return known, err
}
