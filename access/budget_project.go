package access

import (
	"context"
	"sync"
	"time"
)

// ProjectLimits caches the limits of a project for StoreTTL. It is safe for concurrent use; a nil one has no limits.
type ProjectLimits struct {
	ask func(ctx context.Context) (Limits, error)

	mu    sync.Mutex
	known Limits
	err   error // of the last ask
	until time.Time
}

// NewProjectLimits returns the limits that ask reads.
func NewProjectLimits(ask func(ctx context.Context) (Limits, error)) *ProjectLimits {
	return &ProjectLimits{ask: ask}
}

// Get returns the limits, at most StoreTTL old. Concurrent callers wait for one ask.
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
	if p.known, p.err, p.until = known, err, asked.Add(StoreTTL); err != nil { // callers that waited for this failure need not ask again
		p.until = time.Now().Add(StoreTTL)
	}
	return known, err
}
