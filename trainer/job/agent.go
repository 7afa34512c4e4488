package job

import (
	"strings"
	"time"

	"github.com/agl-go/agl/rest"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/runner/process"
)

// spanTokenLife is how long an agent may send spans with the token it was given.
const spanTokenLife = 24 * time.Hour

// newAgent makes the program of the file an agent of a store.
func (c Config) newAgent(storeURL, token string) (*process.Agent, error) {
	p := c.File.Agent.Process
	p.Environ, p.StoreURL, p.LookupEnv, p.Reaper, p.Logger = c.Environ, storeURL, c.LookupEnv, c.Reaper, c.Logger
	if token != "" {
		p.SpanToken = func(rolloutID, attemptID string) string {
			return rest.SpanToken(token, rolloutID, attemptID, time.Now().Add(spanTokenLife))
		}
	}
	return process.New(p)
}

// runnerConfig tunes the runners to the agent's program: its own grace period
// comes before theirs.
func (c Config) runnerConfig() runner.Config {
	grace := c.File.Agent.Process.GracePeriod
	if grace == 0 {
		grace = process.DefaultGracePeriod
	}
	// A run that is stopped cancels its rollouts, of which agents hear with the next
	// heartbeat: a person waits for it.
	const heartbeat = 3 * time.Second
	return runner.Config{GracePeriod: grace + time.Second, HeartbeatInterval: heartbeat}
}

// agentName is the command line, for people.
func (c Config) agentName() string { return strings.Join(c.File.Agent.Process.Command, " ") }
