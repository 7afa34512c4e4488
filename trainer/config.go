package trainer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/bounds"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store"
)

// Config configures [New]. Every process of a run gets the same Config; its
// Strategy decides which part of it the process uses.
type Config struct {
	// Agent does the tasks. Required, except in a process that runs only the
	// algorithm.
	Agent agl.Agent
	// Algorithm learns. If it is nil, Fit runs the rollouts that others enqueue, until
	// its context ends or the queue is closed.
	Algorithm agl.Algorithm
	// Train and Val are the datasets of the algorithm. Either may be nil; an empty one
	// is an error.
	Train, Val agl.Dataset
	// InitialResources are the first version of what agents use and algorithms tune.
	// They are added to the store before any part starts.
	InitialResources agl.Resources
	// OwnResources says that the algorithm adds the first resources itself.
	// Without it, a run that has no resources to work with is an error.
	OwnResources bool
	// Unrewarded says that the algorithm needs no rewards. Without it, a run in which no
	// rollout has a usable one is an error.
	Unrewarded bool
	// Adapter is handed to the algorithm: an agl.Adapter of what it learns from. Nil leaves
	// the choice to the algorithm.
	Adapter any
	// Proxy, if not nil, is started before the other parts and stopped after them, and
	// is added to the initial resources.
	Proxy *Proxy

	// Database stores the run: sqlite:PATH, postgres://… or memory:, as `agl store --db` takes it.
	// Empty means memory:, which ends with the run; the others keep the rollouts of all runs. A run
	// with an Algorithm must be the only user of a SQLite file: it cancels the rollouts that an
	// interrupted run has left unfinished, because nobody waits for them. If runners in other
	// processes can reach the store, rollouts that are running go on.
	Database string
	// Unresponsive ends an attempt whose runner has sent no heartbeat for this time, if
	// its rollout has no such limit of its own; zero means no limit.
	Unresponsive time.Duration
	// Store stores the run instead of a Database; its owner closes it. One run at a time may use it: the
	// end of a run closes the queue, and runners take the rollouts of every run. A strategy that reaches a
	// store over HTTP uses neither.
	Store agl.Store
	// Strategy says which parts run in which process; nil means
	// execution.SharedMemory.
	Strategy execution.Strategy
	// Runners is the number of rollouts that run at the same time, at most [runner.MaxWorkers]; zero means 1.
	Runners int
	// MaxRollouts ends each runner after this number of rollouts; zero means no limit.
	MaxRollouts int
	// Hooks are called for every attempt, in order.
	Hooks []agl.Hook
	// Runner has further settings of the runners: tracer, intervals, time limits. The
	// trainer sets its Store, Agent, Hooks, Workers, FirstWorker, MaxRollouts, Flusher and
	// Logger, and with a Proxy its ProxyToken. Runners of a proxy elsewhere need the
	// ProxyToken here.
	Runner runner.Config

	// NewTracer makes the tracer of each runner over its store; nil leaves Runner.Tracer.
	NewTracer func(s agl.Store) (agl.Tracer, error)
	// NewRunner makes each runner of what the trainer has set up; nil is runner.New.
	NewRunner func(cfg runner.Config) (Runner, error)

	// DevTasks is the number of tasks of each dataset that Dev tries; zero means 4.
	DevTasks int
	// Logger gets what the trainer and its parts do; nil discards it.
	Logger *slog.Logger
}

// Runner is a runner loop. Run returns nil when the store's queue is closed and the
// rollouts that it has taken are reported, and soon after ctx ends.
type Runner interface {
	Run(ctx context.Context) error
}

const defaultDevTasks = 4

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Strategy == nil {
		c.Strategy = execution.SharedMemory{Logger: c.Logger}
	}
	c.Database = cmp.Or(c.Database, "memory:")
	c.DevTasks = cmp.Or(c.DevTasks, defaultDevTasks)
	return c
}

func (c Config) validate() error {
	if c.Agent == nil && c.Strategy.Placement().Role != execution.RoleAlgorithm {
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
	if err := bounds.NotNegative("trainer: ",
		bounds.Number("Runners", c.Runners), bounds.Number("MaxRollouts", c.MaxRollouts), bounds.Number("DevTasks", c.DevTasks),
		bounds.Number("Unresponsive", c.Unresponsive),
	); err != nil {
		return err
	}
	if c.Runners > runner.MaxWorkers {
		return agl.Errorf(agl.CodeInvalid, "trainer: Runners: got %d, must be at most %d", c.Runners, runner.MaxWorkers)
	}
	if _, err := store.ParseDSN(c.Database); err != nil {
		return agl.Errorf(agl.CodeInvalid, "trainer: Database: %w", err)
	}
	for i, r := range c.InitialResources {
		switch {
		case r.Name == "" || r.Resource == nil:
			return agl.Errorf(agl.CodeInvalid, "trainer: InitialResources[%d]: got name %q and resource %v, both are needed", i, r.Name, r.Resource)
		case c.Proxy != nil && r.Name == c.Proxy.cfg.Resource:
			return agl.Errorf(agl.CodeInvalid, "trainer: InitialResources[%d]: got name %q, which the Proxy has; give one of them another name (ProxyConfig.Resource)", i, r.Name)
		}
	}
	if err := c.InitialResources.Validate(); err != nil {
		return fmt.Errorf("trainer: InitialResources: %w", err)
	}
	return nil
}
