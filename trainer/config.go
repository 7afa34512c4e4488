package trainer

import (
	"log/slog"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store/backend"
)

// Config says what a [Trainer] is made of. Every process of a run is built with
// the same Config; its strategy decides what of it the process uses.
type Config struct {
	// Agent does the tasks. Required, but for a process that plays the algorithm
	// only.
	Agent agl.Agent
	// Algorithm learns. With none, Fit serves what others enqueue until its
	// context ends or the queue is closed.
	Algorithm agl.Algorithm
	// Train and Val are handed to the algorithm; nil is none, an empty one is an
	// error.
	Train, Val agl.Dataset
	// InitialResources are what is tuned, as it is at first. They are added to
	// the store before any side starts.
	InitialResources agl.Resources
	// OwnResources says that the algorithm adds the first resources itself.
	// Without it, a run that has no resources to work with is an error.
	OwnResources bool
	// Proxy, if not nil, is started before the sides and stopped after them, and
	// is added to the initial resources.
	Proxy *Proxy

	// Database names where the run is kept, in the form of `agl store --db`:
	// sqlite:PATH, postgres://… or memory:, which ends with the run. Default
	// sqlite:agl.db in the working directory. It holds the rollouts of all runs. A
	// file is the run's own meanwhile: what an interrupted run has left unfinished
	// in it is cancelled, since nobody waits for it, unless the run has no
	// Algorithm.
	Database string
	// Unresponsive gives up an attempt in the Database that nobody has heard of
	// for so long, although its rollout names no limit itself; 0 gives up none.
	Unresponsive time.Duration
	// Store keeps the run instead of a Database; its owner closes it. Neither is
	// used where the strategy reaches a store over HTTP.
	Store agl.Store
	// Strategy says where the sides run; nil is execution.SharedMemory.
	Strategy execution.Strategy
	// Runners is how many rollouts run at once; 0 means 1.
	Runners int
	// MaxRollouts ends each runner after so many; 0 is no limit.
	MaxRollouts int
	// Hooks watch every attempt, in order.
	Hooks []agl.Hook
	// Runner tunes the runners: tracer, intervals, time limits. Its Store, Agent,
	// Hooks, Workers, FirstWorker, MaxRollouts, Flusher, ProxyToken and Logger
	// come from here, Flusher and ProxyToken from Proxy, and are ignored there.
	Runner runner.Config

	// DevTasks is how many tasks of each dataset Dev tries; 0 means 4.
	DevTasks int
	// Logger hears what the trainer and the parts that it makes do; nil discards.
	Logger *slog.Logger
}

const defaultDevTasks = 4

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Strategy == nil {
		c.Strategy = execution.SharedMemory{Logger: c.Logger}
	}
	if c.Database == "" {
		c.Database = backend.Default
	}
	if c.DevTasks == 0 {
		c.DevTasks = defaultDevTasks
	}
	return c
}

func (c Config) validate() error {
	if c.Agent == nil && c.role() != execution.RoleAlgorithm {
		return agl.Errorf(agl.CodeInvalid, "trainer: Agent: none given, needed by every process that runs rollouts")
	}
	for _, d := range []struct {
		name string
		set  agl.Dataset
	}{{"Train", c.Train}, {"Val", c.Val}} {
		if d.set != nil && d.set.Len() == 0 {
			return agl.Errorf(agl.CodeInvalid, "trainer: %s: the dataset is empty, it must hold at least one task", d.name)
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"Runners", c.Runners}, {"MaxRollouts", c.MaxRollouts}, {"DevTasks", c.DevTasks}} {
		if n.value < 0 {
			return agl.Errorf(agl.CodeInvalid, "trainer: %s: got %d, must not be negative", n.name, n.value)
		}
	}
	if c.Unresponsive < 0 {
		return agl.Errorf(agl.CodeInvalid, "trainer: Unresponsive: got %s, must not be negative", c.Unresponsive)
	}
	if _, err := backend.Parse(c.Database); err != nil {
		return agl.Errorf(agl.CodeInvalid, "trainer: Database: %w", err)
	}
	for i, r := range c.InitialResources {
		if r.Name == "" || r.Resource == nil {
			return agl.Errorf(agl.CodeInvalid, "trainer: InitialResources[%d]: got name %q and resource %v, both are needed", i, r.Name, r.Resource)
		}
	}
	return nil
}

// role is this process's part; shared memory plays both.
func (c Config) role() execution.Role {
	switch s := c.Strategy.(type) {
	case execution.ClientServer:
		return s.Role
	case *execution.ClientServer:
		return s.Role
	default:
		return execution.RoleBoth
	}
}

// sharesMemory reports whether no other process can reach the run's store.
func (c Config) sharesMemory() bool {
	switch c.Strategy.(type) {
	case execution.SharedMemory, *execution.SharedMemory:
		return true
	default:
		return false
	}
}
