package job

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// running is an agent whose attempts can be waited for. While attempts run and none
// ends for a quietTime, it tells a person, once.
type running struct {
	agl.Agent

	notice func(text string)

	attempts sync.WaitGroup
	mu       sync.Mutex
	active   int
	quiet    *time.Timer // nil before the first attempt and after the notice
}

// quietTime is how long a person should wait for the end of an attempt before
// wondering.
const quietTime = time.Minute

// Run implements [agl.Agent].
func (r *running) Run(ctx context.Context, task agl.Task) (agl.Result, error) {
	r.attempts.Add(1)
	defer r.attempts.Done()
	r.count(1)
	defer r.count(-1)
	return r.Agent.Run(ctx, task)
}

// count counts an attempt that begins or ends.
func (r *running) count(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active += n
	switch {
	case r.quiet == nil && n > 0 && r.notice != nil:
		r.quiet = time.AfterFunc(quietTime, r.tell)
	case r.quiet != nil && n < 0 && r.active == 0:
		r.quiet.Stop()
		r.quiet = nil
	case r.quiet != nil && n < 0:
		r.quiet.Reset(quietTime)
	}
}

func (r *running) tell() {
	r.mu.Lock()
	notice, active := r.notice, r.active
	r.notice, r.quiet = nil, nil
	r.mu.Unlock()
	if notice != nil && active > 0 {
		notice(fmt.Sprintf("no attempt has ended for %s, %d are running; agent.timeout limits them, and agl train --dry-run shows what one does", quietTime, active))
	}
}

// wait returns when no attempt is running, or after d: a run that is interrupted
// twice does not wait for its attempts, whose processes are still ending.
func (r *running) wait(d time.Duration) {
	r.mu.Lock()
	r.notice = nil
	if r.quiet != nil {
		r.quiet.Stop()
	}
	r.mu.Unlock()
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
