package job

import (
	"context"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// running is an agent whose attempts can be waited for.
type running struct {
	agl.Agent

	attempts sync.WaitGroup
}

// Run implements [agl.Agent].
func (r *running) Run(ctx context.Context, task agl.Task) (agl.Result, error) {
	r.attempts.Add(1)
	defer r.attempts.Done()
	return r.Agent.Run(ctx, task)
}

// wait returns when no attempt is running, or after d: a run that is interrupted
// twice does not wait for its attempts, whose processes are still ending.
func (r *running) wait(d time.Duration) {
	ended := make(chan struct{})
	go func() {
		r.attempts.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(d):
	}
}
