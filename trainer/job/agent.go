package job

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"net/http"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/runner/process"
)

// countedAgent counts the attempts that run: it can wait for them, and gives notice, once, if none ends for a quietTime.
type countedAgent struct {
	agl.Agent

	notice func(text string)

	attempts sync.WaitGroup
	mu       sync.Mutex
	active   int
	begun    int         // in all
	quiet    *time.Timer // nil before the first attempt and after the notice
}

// quietTime is how long a person should wait for the end of an attempt before
// wondering.
const quietTime = time.Minute

func (a *countedAgent) Run(ctx context.Context, task agl.Task) (agl.Result, error) {
	a.attempts.Add(1)
	defer a.attempts.Done()
	a.count(1)
	defer a.count(-1)
	return a.Agent.Run(ctx, task)
}

// count counts an attempt that begins or ends.
func (a *countedAgent) count(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active += n
	a.begun += max(n, 0)
	switch {
	case a.quiet == nil && n > 0 && a.notice != nil:
		a.quiet = time.AfterFunc(quietTime, a.giveNotice)
	case a.quiet != nil && n < 0 && a.active == 0:
		a.quiet.Stop()
		a.quiet = nil
	case a.quiet != nil && n < 0:
		a.quiet.Reset(quietTime)
	}
}

// total is how many attempts have begun.
func (a *countedAgent) total() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.begun
}

func (a *countedAgent) giveNotice() {
	a.mu.Lock()
	notice, active := a.notice, a.active
	a.notice, a.quiet = nil, nil
	a.mu.Unlock()
	if notice != nil && active > 0 {
		notice(fmt.Sprintf("no attempt has ended for %s, %d are running; agent.timeout limits them, and agl train --dry-run shows what one does", quietTime, active))
	}
}

// wait returns when no attempt is running, or after d: a run that is interrupted
// twice does not wait for its attempts, whose processes are still ending.
func (a *countedAgent) wait(d time.Duration) {
	a.mu.Lock()
	a.notice = nil
	if a.quiet != nil {
		a.quiet.Stop()
	}
	a.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		a.attempts.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(d):
	}
}

// newAgent returns the agent, or makes one of the program of the file. Closing it ends the
// processes that it keeps.
func (c Config) newAgent(ctx context.Context, storeURL, token string) (_ agl.Agent, closeAgent func(), err error) {
	if c.Agent != nil {
		return c.Agent, func() {}, nil
	}
	p := c.File.Agent.Process
	p.Environ, p.StoreURL, p.Reaper, p.Logger, p.Hurry = c.Environ, storeURL, c.Reaper, c.Logger, execution.Forced(ctx)
	p.Withhold = c.File.Secrets()
	if storeURL != "" { // an agent that knows no store sends it no spans
		if p.SpanToken, err = client.SpanTokens(client.Config{URL: storeURL, Token: token, TLS: c.TLS}); err != nil {
			return nil, nil, err
		}
	}
	agent, err := process.New(p)
	if err != nil {
		return nil, nil, err
	}
	agent.WarnCrowded(c.File.Agent.Concurrency)
	return agent, agent.Close, nil
}

// agentCommand is the command line, for people; empty if there is none.
func (c Config) agentCommand() string { return strings.Join(c.File.Agent.Process.Command, " ") }

// runnerConfig makes the runner's grace period longer than that of the agent's program.
func (c Config) runnerConfig() runner.Config {
	grace := cmp.Or(c.File.Agent.Process.GracePeriod, process.DefaultGracePeriod)
	// A run that is stopped cancels its rollouts. Agents learn of it with the next
	// heartbeat, while a person is waiting.
	const heartbeat = 3 * time.Second
	cfg := runner.Config{GracePeriod: grace + time.Second, HeartbeatInterval: heartbeat}
	if c.TLS != nil {
		cfg.HTTPClient = &http.Client{Transport: c.transport()}
	}
	return cfg
}

// drainTimeout is how long runners may take to finish their rollouts. It covers the
// grace period of the agents.
func (c Config) drainTimeout() time.Duration {
	const least = 10 * time.Second
	return max(least, c.runnerConfig().GracePeriod+least/2)
}
