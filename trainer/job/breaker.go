package job

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// hopeless is how many attempts an agent may fail from the first on before the run
// ends: one that cannot even start would only ever earn nothing.
const hopeless = 32

// guard is an agent that is watched for never doing a task.
type guard struct {
	agent agl.Agent
	// giveUp is called once, with why.
	giveUp func(err error)

	running  sync.WaitGroup
	mu       sync.Mutex
	done     bool // a task, so that nothing more is watched for
	failures int
	last     string
}

var _ agl.Agent = (*guard)(nil)

// Run implements [agl.Agent].
func (g *guard) Run(ctx context.Context, task agl.Task) (agl.Result, error) {
	g.running.Add(1)
	defer g.running.Done()
	result, err := g.agent.Run(ctx, task)
	if ctx.Err() == nil {
		g.see(err)
	}
	return result, err
}

// wait returns when no attempt runs any more, or after d: who insists on the end of
// a run leaves attempts behind whose processes are still being ended.
func (g *guard) wait(d time.Duration) {
	ended := make(chan struct{})
	go func() {
		g.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(d):
	}
}

func (g *guard) see(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	outcome := agl.OutcomeOf(err)
	switch {
	case g.done:
	case outcome.Kind == agl.OutcomeAgentError || outcome.Kind == agl.OutcomeSetupError:
		g.failures++
		g.last = outcome.Message
		if g.failures == hopeless {
			g.giveUp(g.complaint())
		}
	default:
		g.done = true
	}
}

// complaint says that the agent has done nothing; the lock is held.
func (g *guard) complaint() error {
	return agl.Errorf(agl.CodeIllegalState, "the agent has failed all of its %d attempts, the last one so: %s (see agl train --dry-run)", g.failures, g.last)
}

// warning is what a report should say of the agent; empty when it has done a task,
// or tried none.
func (g *guard) warning() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done || g.failures == 0 {
		return ""
	}
	return fmt.Sprint(g.complaint())
}
