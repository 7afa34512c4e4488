package job

import (
	"context"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// failureLimit ends the run if this many attempts, from the first on, have all failed:
// an agent that cannot even start would never earn a reward.
const failureLimit = 32

// breaker is an agent with a circuit breaker: it ends the run if the agent only
// fails.
type breaker struct {
	agent agl.Agent
	// trip is called once, with the reason.
	trip func(err error)

	running  sync.WaitGroup
	mu       sync.Mutex
	worked   bool // an attempt did its task: the breaker stays closed for good
	failures int
	last     string
}

var _ agl.Agent = (*breaker)(nil)

// Run implements [agl.Agent].
func (b *breaker) Run(ctx context.Context, task agl.Task) (agl.Result, error) {
	b.running.Add(1)
	defer b.running.Done()
	result, err := b.agent.Run(ctx, task)
	if ctx.Err() == nil {
		b.record(err)
	}
	return result, err
}

// wait returns when no attempt is running, or after d: a run that is interrupted
// twice does not wait for its attempts, whose processes are still ending.
func (b *breaker) wait(d time.Duration) {
	ended := make(chan struct{})
	go func() {
		b.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(d):
	}
}

func (b *breaker) record(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	outcome := agl.OutcomeOf(err)
	switch {
	case b.worked:
	case outcome.Kind == agl.OutcomeAgentError || outcome.Kind == agl.OutcomeSetupError:
		b.failures++
		b.last = outcome.Message
		if b.failures == failureLimit {
			b.trip(b.reason())
		}
	default:
		b.worked = true
	}
}

// reason says that the agent has only failed; the caller holds the lock.
func (b *breaker) reason() error {
	return agl.Errorf(agl.CodeIllegalState, "the agent has failed all of its %d attempts, the last one with: %s (see agl train --dry-run)", b.failures, b.last)
}

// warning is what the report should say about the agent; empty if it has done a
// task, or tried none.
func (b *breaker) warning() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.worked || b.failures == 0 {
		return ""
	}
	return b.reason().Error()
}
