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

// Trial is what became of one rollout.
type Trial struct {
	Rollout  agl.AttemptedRollout
	Attempts []agl.Attempt
	Spans    []agl.Span
	Outcome  agl.Outcome
	// Reward is what an algorithm would learn from; null with the reason in Mask.
	Reward agl.Null[float64]
	Mask   algorithm.Mask
	// Triplets are the model calls as an algorithm sees them; TripletsError is why
	// the spans cannot be read as such.
	Triplets      []adapter.Triplet
	TripletsError error
	// Stderr is what the agent wrote to standard error, as far as it is kept.
	Stderr string
	// Usage is what its model calls have used, Took the time from the first attempt
	// to the end.
	Usage trainer.Usage
	Took  time.Duration
	// Untrained is true when the model was one that has learned nothing yet, as the
	// engine starts with none that has, or as the warm start was left out.
	Untrained bool
}

// Try does one rollout of the first training task, once, and keeps nothing: the
// store is in memory, nothing is trained, and the output folder is left alone.
func Try(ctx context.Context, cfg Config) (_ *Trial, err error) {
	cfg.Role, cfg.StoreURL = execution.RoleBoth, ""
	cfg = cfg.withDefaults()
	cfg.File.Store.URL, cfg.File.Store.Listen, cfg.File.Store.Database = "", "", "memory:"
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if len(cfg.File.Agent.Process.Command) == 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "agent: none given, there is nothing to try")
	}
	if p := cfg.File.Proxy; p != nil && p.Config.PublicURL == "" {
		free := *p
		free.Listen = "" // a run may have the address
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
	trying, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	trained, err := cfg.newEngine(ctx, "", giveUp)
	if err != nil {
		return nil, err
	}
	if trained != nil {
		defer func() { err = errors.Join(err, trained.Close(context.WithoutCancel(ctx))) }()
	}
	strategy, storeURL, err := cfg.strategy(ctx, token)
	if err != nil {
		return nil, err
	}
	agent, err := cfg.newAgent(storeURL, token)
	if err != nil {
		return nil, errors.Join(err, closeListener(strategy))
	}
	defer agent.Close()
	t := &try{
		learner: learner{cfg: cfg, engine: trained, proxy: cfg.newProxy(trained, token), display: display.New(false, display.Options{Out: cfg.Out})},
		trial:   &Trial{Untrained: trained != nil && (cfg.File.Engine.Policy != nil || cfg.File.Engine.WarmStart() != nil)},
	}
	run, err := trainer.New(trainer.Config{
		Agent: agent, Algorithm: t, Train: train, InitialResources: cfg.File.Prompts, OwnResources: true,
		Proxy: t.learner.proxy, Database: cfg.File.Store.Database, Strategy: strategy, Runner: cfg.runnerConfig(), Logger: cfg.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, closeListener(strategy))
	}
	if err := run.Fit(trying); err != nil {
		return nil, err
	}
	return t.trial, nil
}

// try is the algorithm of a trial.
type try struct {
	learner learner
	trial   *Trial
}

// Run implements [agl.Algorithm].
func (t *try) Run(ctx context.Context, in agl.AlgorithmInput) error {
	if t.learner.engine != nil {
		if err := t.learner.serve(ctx, t.learner.fileWeights()); err != nil {
			return err
		}
	}
	resources, err := in.Store.AddResources(ctx, agl.AddResourcesParams{Resources: in.InitialResources})
	if err != nil {
		return fmt.Errorf("add resources: %w", err)
	}
	task, err := in.Train.Task(0)
	if err != nil {
		return err
	}
	limits := t.learner.cfg.File.Agent.Rollout.WithDefaults()
	limits.MaxAttempts = 1 // the first failure is what one wants to see
	queued, err := in.Store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{
		Input: task, Mode: agl.ModeTrain, ResourcesID: agl.Some(resources.ResourcesID), Config: &limits,
	}}})
	if err != nil {
		return fmt.Errorf("enqueue the rollout: %w", err)
	}
	episodes, err := algorithm.Await(ctx, in.Store, t.learner.flusher(), []string{queued[0].RolloutID})
	if err != nil {
		return errors.Join(err, algorithm.Cancel(ctx, in.Store, []string{queued[0].RolloutID}))
	}
	return t.read(ctx, in.Store, &episodes[0])
}

// read takes down what became of the rollout.
func (t *try) read(ctx context.Context, store agl.Store, e *algorithm.Episode) (err error) {
	trial := t.trial
	if trial.Rollout, err = store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: e.Rollout.RolloutID}); err != nil {
		return err
	}
	attempts, err := store.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: e.Rollout.RolloutID})
	if err != nil {
		return err
	}
	trial.Attempts, trial.Spans, trial.Outcome = attempts.Items, e.Spans, e.Outcome
	reward, mask := e.Score()
	if trial.Mask = mask; mask == "" {
		trial.Reward = agl.Some(reward)
	}
	var calls agl.Adapter[[]adapter.Triplet] = adapter.TracerTriplets{}
	if t.learner.proxy != nil {
		calls = adapter.ProxyTriplets{}
		trial.Usage = t.learner.proxy.Usage()
	}
	if len(e.Spans) > 0 {
		trial.Triplets, trial.TripletsError = calls.Adapt(e.Spans)
	}
	for i := range e.Spans {
		if stream, _ := e.Spans[i].Attributes.GetString(process.AttrStream); stream == "stderr" {
			trial.Stderr, _ = e.Spans[i].Attributes.GetString(agl.AttrMessageBody)
		}
	}
	if a := e.Attempt; a != nil && a.EndTime.Valid {
		trial.Took = a.EndTime.V.Sub(a.StartTime)
	}
	return nil
}
