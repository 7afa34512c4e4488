package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/display"
)

// DryRunResult is the result of one rollout.
type DryRunResult struct {
	Rollout  agl.AttemptedRollout
	Attempts []agl.Attempt
	Spans    []agl.Span
	Outcome  agl.Outcome
	// Reward is what an algorithm would learn from; null with the reason in Mask.
	Reward agl.Null[float64]
	Mask   algorithm.Mask
	// Triplets are the model calls as an algorithm sees them; TripletsError is why the
	// spans cannot be read as such.
	Triplets      []adapter.Triplet
	TripletsError error
	// LastOutput is the last line of the agent's standard output, and Stderr all that it
	// wrote to standard error, as far as they are recorded.
	LastOutput string
	Stderr     string
	// Misplaced is a reward that the agent wrote to standard error, where none is read.
	Misplaced string
	// NeedsCalls is true if the algorithm learns from recorded model calls.
	NeedsCalls bool
	// Usage is that of its model calls, Took the time from the first attempt to the
	// end.
	Usage trainer.Usage
	Took  time.Duration
	// Untrained is true if the model had learned nothing, because the engine starts
	// with a new one, or because the warm start was left out.
	Untrained bool
}

// DryRun runs the first training task once. It trains nothing and stores nothing:
// the store is in memory, and the output folder does not change.
func DryRun(ctx context.Context, cfg Config) (_ *DryRunResult, err error) {
	cfg.Role, cfg.StoreURL = execution.RoleBoth, ""
	cfg = cfg.withDefaults()
	trainedBefore := cfg.From != ""
	if trainedBefore {
		if cfg, err = cfg.from(cfg.From); err != nil {
			return nil, err
		}
	}
	cfg.File.Store.URL, cfg.File.Store.Listen, cfg.File.Store.Database = "", "", "memory:"
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if !cfg.hasAgent() {
		return nil, agl.Errorf(agl.CodeInvalid, "agent: none given, there is nothing to run")
	}
	if p := cfg.File.Proxy; p != nil && p.Config.PublicURL == "" {
		free := *p
		free.Listen = "" // a run may be using the address
		cfg.File.Proxy = &free
	}
	token, err := cfg.storeToken()
	if err != nil {
		return nil, err
	}
	train, _, err := loadData(cfg.File.Data)
	if err != nil {
		return nil, err
	}
	running, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	trained, err := cfg.newEngine(ctx, "", abort)
	if err != nil {
		return nil, err
	}
	if trained != nil {
		defer func() { err = errors.Join(err, trained.Close(context.WithoutCancel(ctx))) }()
	}
	served, stopServer, err := cfg.startServer(ctx, "", abort)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopServer()) }()
	strategy, storeURL, err := cfg.strategy(ctx, token)
	if err != nil {
		return nil, err
	}
	agent, closeAgent, err := cfg.newAgent(ctx, storeURL, token)
	if err != nil {
		return nil, errors.Join(err, closeListener(strategy))
	}
	defer closeAgent()
	d := &dryRun{
		learner: learner{cfg: cfg, engine: trained, proxy: cfg.newProxy(trained, served, token), display: display.New(false, display.Options{Out: cfg.Out})},
		result:  &DryRunResult{Untrained: trained != nil && !trainedBefore && (cfg.File.Engine.Policy != nil || cfg.File.Engine.WarmStart() != nil)},
	}
	t, err := trainer.New(trainer.Config{
		Agent: agent, Algorithm: d, Train: train, InitialResources: cfg.File.Prompts, OwnResources: true, Unrewarded: true,
		Proxy: d.learner.proxy, Database: cfg.File.Store.Database, Strategy: strategy, Runner: cfg.runnerConfig(), Logger: cfg.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, closeListener(strategy))
	}
	if err := t.Fit(running); err != nil {
		return nil, err
	}
	return d.result, nil
}

// dryRun is the algorithm of a dry run.
type dryRun struct {
	learner learner
	result  *DryRunResult
}

func (d *dryRun) Run(ctx context.Context, in agl.AlgorithmInput) error {
	if d.learner.engine != nil {
		if err := d.learner.serveAll(ctx, d.learner.fileWeights()); err != nil {
			return err
		}
	}
	resources, err := in.Store.AddResources(ctx, agl.AddResourcesParams{Resources: in.InitialResources, KeepLatest: true})
	if err != nil {
		return fmt.Errorf("add resources: %w", err)
	}
	task, err := in.Train.Task(0)
	if err != nil {
		return err
	}
	limits := d.learner.cfg.File.Agent.Rollout.WithDefaults()
	limits.MaxAttempts = 1 // the first failure is of interest
	queued, err := in.Store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{
		Input: task, Mode: agl.ModeTrain, ResourcesID: agl.Some(resources.ResourcesID), Config: &limits,
		Metadata: fmt.Appendf(nil, `{%q:%d}`, algorithm.MetadataSeed, algorithm.DeriveSeed(d.learner.cfg.File.Seed, "dry run")),
	}}})
	if err != nil {
		return fmt.Errorf("enqueue the rollout: %w", err)
	}
	defer d.tellHang().Stop()
	episodes, err := algorithm.Await(ctx, in.Store, d.learner.flusher(), nil, []string{queued[0].RolloutID})
	if err != nil {
		return errors.Join(err, algorithm.Cancel(ctx, in.Store, []string{queued[0].RolloutID}))
	}
	return d.read(ctx, in.Store, &episodes[0])
}

// hangTime is how long the rollout may take before a person is told.
const hangTime = 10 * time.Second

// tellHang says after hangTime that the rollout is still running.
func (d *dryRun) tellHang() *time.Timer {
	file := d.learner.cfg.File
	return time.AfterFunc(hangTime, func() {
		text := "the agent has not ended yet; Ctrl-C ends it"
		if file.Agent.Process.Keepalive != "" {
			text = `the agent has not replied yet, which it does with a line such as {"reward": 0.7}; Ctrl-C ends it`
		}
		d.learner.cfg.Logger.Warn(text, "running_for", hangTime, "agent.timeout", time.Duration(file.Agent.Rollout.TimeoutSeconds.V*float64(time.Second)))
	})
}

// read reads the result of the rollout.
func (d *dryRun) read(ctx context.Context, store agl.Store, e *algorithm.Episode) (err error) {
	r := d.result
	if r.Rollout, err = store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: e.Rollout.RolloutID}); err != nil {
		return err
	}
	attempts, err := store.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: e.Rollout.RolloutID})
	if err != nil {
		return err
	}
	r.Attempts, r.Spans, r.Outcome = attempts.Items, e.Spans, e.Outcome
	if r.Outcome.Kind != agl.OutcomeOK {
		r.Outcome.Message = trainer.WithCallError(r.Outcome.Message, e.Spans)
	}
	reward, mask := e.Score()
	if r.Mask = mask; mask == "" {
		r.Reward = agl.Some(reward)
	}
	var calls agl.Adapter[[]adapter.Triplet] = adapter.TracerTriplets{}
	if d.learner.proxy != nil {
		calls = adapter.ProxyTriplets{}
		r.Usage = d.learner.proxy.Usage()
	}
	if len(e.Spans) > 0 {
		r.Triplets, r.TripletsError = calls.Adapt(e.Spans)
	}
	r.LastOutput, r.Misplaced, r.NeedsCalls = trainer.LastOutput(e.Spans), trainer.MisplacedReward(e.Spans), d.learner.LearnsFromCalls()
	for i := range e.Spans {
		if stream, _ := e.Spans[i].Attributes.GetString(process.AttrStream); stream == "stderr" {
			r.Stderr, _ = e.Spans[i].Attributes.GetString(agl.AttrMessageBody)
		}
	}
	if a := e.Attempt; a != nil && a.EndTime.Valid {
		r.Took = a.EndTime.V.Sub(a.StartTime)
	}
	return nil
}
