package trainer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/collect"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/runner"
)

// Trainer runs training. It may be used again when a run has ended. Make it with
// [New].
type Trainer struct {
	cfg Config

	fitting atomic.Bool
	mu      sync.Mutex
	check   *uselessCheck // of the latest run; nil without an algorithm
}

// Failures are the rollouts of the latest run that failed, grouped by reason, the most
// frequent first.
func (t *Trainer) Failures() []Failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.check == nil {
		return nil
	}
	return t.check.list()
}

// New makes a trainer. It starts nothing. A Config out of range is agl.ErrInvalid.
func New(cfg Config) (*Trainer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Trainer{cfg: cfg}, nil
}

type trainerKey struct{}

// FromContext returns the trainer of a run, in the contexts that its algorithm, its agents and their hooks get in this
// process; nil in others.
func FromContext(ctx context.Context) *Trainer {
	t, _ := ctx.Value(trainerKey{}).(*Trainer)
	return t
}

// Config returns the configuration of the trainer, with the defaults filled in.
func (t *Trainer) Config() Config { return t.cfg }

// Fit runs the algorithm and the runners to their end, or this process's part of them. Fit returns agl.ErrIllegalState if none of the
// rollouts that the algorithm waited for, or of those for training, had a usable reward or, with a [CallLearner], a model call. It ends
// the run as soon as none of the first 20 has. So is a Fit while another one of the Trainer has not returned. Other errors are those of
// the strategy: see [execution.Strategy] and [execution.ExitCode].
func (t *Trainer) Fit(ctx context.Context) error {
	if !t.fitting.CompareAndSwap(false, true) {
		return agl.Errorf(agl.CodeIllegalState, "trainer: a run is in progress; wait for it, or make another Trainer with an Algorithm of its own")
	}
	defer t.fitting.Store(false)
	return t.run(ctx, t.cfg, t.cfg.Strategy)
}

// run executes one run of a config.
func (t *Trainer) run(ctx context.Context, cfg Config, strategy execution.Strategy) error {
	ctx = context.WithValue(ctx, trainerKey{}, t)
	// Setup adds the proxy to the resources. The strategy calls it before the
	// algorithm.
	resources := cfg.InitialResources
	storeURL := ""
	parts := execution.Parts{
		Runners:   cfg.Runners,
		StoreURL:  func(url string) { storeURL = url },
		OpenStore: func(ctx context.Context) (execution.OpenedStore, error) { return openStore(ctx, cfg) },
		Setup: func(ctx context.Context, s agl.Store) (func(context.Context) error, error) {
			var stop func(context.Context) error
			var err error
			resources, stop, err = setup(ctx, cfg, s)
			return stop, err
		},
	}
	if cfg.Algorithm != nil {
		parts.Algorithm = func(ctx context.Context, s agl.Store) error {
			in := agl.AlgorithmInput{Train: cfg.Train, Val: cfg.Val, InitialResources: resources, StoreURL: storeURL, Adapter: cfg.Adapter}
			if cfg.Proxy != nil {
				in.Proxy = cfg.Proxy
			}
			return t.learn(ctx, cfg, s, in)
		}
	}
	if cfg.Agent != nil {
		parts.Runner = func(ctx context.Context, s agl.Store, worker int) error {
			return runRunner(ctx, cfg, outlasting(s, cfg), worker)
		}
	}
	return strategy.Execute(ctx, parts)
}

// learn runs the algorithm. A run that cannot have learned anything is an error.
func (t *Trainer) learn(ctx context.Context, cfg Config, s agl.Store, in agl.AlgorithmInput) error {
	in.Runs = agl.RunsOf(s)
	collector, err := collectorOf(s, cfg.Logger)
	if err != nil {
		return err
	}
	in.Collector = collector
	s = outlasting(s, cfg)
	if o, ok := s.(*outlast); ok {
		in.Collector = outlastCollector{collector, o}
	}
	learner, ok := cfg.Algorithm.(CallLearner)
	ctx, endRun := context.WithCancelCause(ctx)
	defer endRun(nil)
	w := &uselessCheck{Store: s, calls: ok && learner.LearnsFromCalls(), endRun: endRun, seen: map[string]bool{}, failures: failures{}}
	if !cfg.Unrewarded {
		t.mu.Lock()
		t.check = w
		t.mu.Unlock()
		s = w
	}
	in.Store = s
	err = cfg.Algorithm.Run(ctx, in)
	if useless, ok := errors.AsType[uselessError](context.Cause(ctx)); ok {
		return useless // not the error of the algorithm, which was only cancelled
	}
	if err != nil {
		return err
	}
	return w.verdict()
}

// collectorOf returns the collector of a store: that of a client of the HTTP API, or one over
// an engine. It returns nil if the store hands out no finished rollouts.
func collectorOf(s agl.Store, logger *slog.Logger) (agl.Collector, error) {
	switch s := s.(type) {
	case agl.Collector:
		return s, nil
	case collect.Store:
		return collect.New(collect.Config{Store: s, Logger: logger})
	default:
		return nil, nil //nolint:nilnil // most algorithms need none
	}
}

// addInitial makes the initial resources the latest, once: when a run is started again,
// what was learned since stays the latest. If proxied, the last resource is the proxy's, whose
// address may have changed.
func addInitial(ctx context.Context, s agl.Store, resources agl.Resources, proxied bool) error {
	own := resources
	if proxied {
		own = resources[:len(resources)-1]
	}
	sum := sha256.Sum256(own.AppendJSON(nil))
	id := "initial-" + hex.EncodeToString(sum[:6])
	_, err := s.GetResources(ctx, agl.GetResourcesParams{ResourcesID: id})
	if errors.Is(err, agl.ErrNotFound) {
		_, err = s.UpdateResources(ctx, agl.UpdateResourcesParams{ResourcesID: id, Resources: resources})
		return err
	}
	if err != nil || !proxied {
		return err
	}
	latest, err := s.GetLatestResources(ctx)
	if err != nil {
		return err
	}
	proxy := resources[len(resources)-1]
	bundle := slices.DeleteFunc(slices.Clone(latest.Resources), func(n agl.NamedResource) bool { return n.Name == proxy.Name })
	bundle = append(bundle, proxy)
	if bytes.Equal(bundle.AppendJSON(nil), latest.Resources.AppendJSON(nil)) {
		return nil
	}
	_, err = s.AddResources(ctx, agl.AddResourcesParams{Resources: bundle})
	return err
}

// Starter is an [agl.Algorithm] that begins before anything of its run is in the store and before the queue is opened.
type Starter interface {
	// Start returns an error if the run must not begin; the queue then stays as it is.
	Start(ctx context.Context, s agl.Store) error
	// Stop is called after a Start without an error, when all parts have ended. Run was not called if a part could not be started.
	Stop(ctx context.Context) error
}

// setup starts the proxy and adds the initial resources.
func setup(ctx context.Context, cfg Config, s agl.Store) (agl.Resources, func(context.Context) error, error) {
	resources := slices.Clone(cfg.InitialResources)
	stop := func(context.Context) error { return nil }
	if cfg.Proxy != nil {
		resource, err := cfg.Proxy.start(ctx, s, cfg.Logger)
		if err != nil {
			return nil, nil, fmt.Errorf("start the LLM proxy: %w", err)
		}
		stop = cfg.Proxy.stop
		resources = append(resources, resource)
	}
	if starter, ok := cfg.Algorithm.(Starter); ok {
		if err := starter.Start(ctx, s); err != nil {
			return nil, nil, errors.Join(err, stop(ctx))
		}
		stopProxy := stop
		// The proxy first: both share the time of ctx, and if the store is away, the proxy's unsaved spans matter more than the run's status.
		stop = func(ctx context.Context) error { return errors.Join(stopProxy(ctx), starter.Stop(ctx)) }
	}
	if err := addResources(ctx, cfg, s, resources, cfg.Proxy != nil); err != nil {
		return nil, nil, errors.Join(err, stop(ctx))
	}
	return resources, stop, nil
}

func addResources(ctx context.Context, cfg Config, s agl.Store, resources agl.Resources, proxied bool) error {
	if len(resources) > 0 {
		if err := addInitial(ctx, s, resources, proxied); err != nil {
			return fmt.Errorf("add the initial resources: %w", err)
		}
		return nil
	}
	if cfg.OwnResources || cfg.Algorithm == nil {
		return nil
	}
	_, err := s.GetLatestResources(ctx)
	if errors.Is(err, agl.ErrNotFound) {
		return agl.Errorf(agl.CodeInvalid,
			"trainer: InitialResources: none given and the store holds none, so the agent would have nothing to work with; "+
				"give some, or a Proxy, or set OwnResources when the algorithm adds them itself")
	}
	if err != nil {
		return fmt.Errorf("look for resources: %w", err)
	}
	return nil
}

// runRunner is one runner loop.
func runRunner(ctx context.Context, cfg Config, s agl.Store, worker int) error {
	rc := cfg.Runner
	rc.Store, rc.Agent, rc.Hooks, rc.Logger = s, cfg.Agent, cfg.Hooks, cfg.Logger
	rc.Workers, rc.FirstWorker, rc.MaxRollouts = 1, worker, cfg.MaxRollouts
	rc.Flusher = nil
	if cfg.Proxy != nil {
		rc.ProxyToken = cfg.Proxy.cfg.Token
		if cfg.Proxy.now() != nil {
			rc.Flusher = cfg.Proxy
		}
	}
	if cfg.NewTracer != nil {
		tracer, err := cfg.NewTracer(s)
		if err != nil {
			return fmt.Errorf("make a tracer: %w", err)
		}
		rc.Tracer = tracer
	}
	if cfg.NewRunner != nil {
		r, err := cfg.NewRunner(rc)
		if err != nil {
			return fmt.Errorf("make a runner: %w", err)
		}
		return r.Run(ctx)
	}
	r, err := runner.New(rc)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}
