package sft

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// TrainConfig configures [Train]. Fields that are not required may be zero.
type TrainConfig struct {
	// Service is the engine that trains. Required.
	Service tinker.Service
	// Model describes the model to create.
	Model tinker.CreateModelParams
	// Source supplies the batches. Required.
	Source Source
	// Steps is the number of optimizer steps. Required.
	Steps int
	// Schedule is the learning rate of each step. Its Peak is required.
	Schedule algorithm.Schedule
	// Adam is that of algorithm.TrainingConfig.
	Adam tinker.AdamParams
	// OutDir holds checkpoints, from which a later Train with the same settings resumes; empty keeps none.
	OutDir string
	// CheckpointEvery is the number of steps between checkpoints; zero means 200. The last step always makes one.
	CheckpointEvery int
	// OnStart is called before the first step, with the number of steps that a checkpoint has done; nil does nothing.
	OnStart func(done int)
	// OnStep is called after each step; nil does nothing.
	OnStep func(StepReport)
	// Logger gets information for people; nil discards it.
	Logger *slog.Logger
}

// StepReport is the report of a step.
type StepReport struct {
	Step         int     // from 1
	Steps        int     // of the run
	Loss         float64 // mean negative log-likelihood per weighted token, in nats
	LearningRate float64
	GradNorm     float64 // before clipping
	Tokens       int     // of the batch, unweighted ones included
	Duration     time.Duration
}

// Result is that of [Train].
type Result struct {
	// Weights is the path of the final checkpoint, for tinker.TrainingClient.LoadWeights. The engine keeps it.
	Weights string
	// Loss is that of the last step; NaN if a checkpoint had done all steps.
	Loss float64
}

func (c TrainConfig) withDefaults() TrainConfig {
	c.Adam = algorithm.AdamWithDefaults(c.Adam)
	c.CheckpointEvery = cmp.Or(c.CheckpointEvery, 200)
	if c.OnStart == nil {
		c.OnStart = func(int) {}
	}
	if c.OnStep == nil {
		c.OnStep = func(StepReport) {}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// training is the part of the settings that [algorithm.TrainingConfig] has, too.
func (c TrainConfig) training() algorithm.TrainingConfig {
	return algorithm.TrainingConfig{Service: c.Service, Model: c.Model, Schedule: c.Schedule, Adam: c.Adam, CheckpointEvery: c.CheckpointEvery}
}

func (c TrainConfig) validate() error {
	if c.Source == nil {
		return invalid("Source is nil; data is required")
	}
	if err := cmp.Or(c.training().Validate(), algorithm.AtLeast(algorithm.Minimum{Field: "Steps", Value: c.Steps, Least: 1})); err != nil {
		return invalid("%w", err)
	}
	return nil
}

func (c TrainConfig) identity() map[string]string {
	id := c.training().Identity("sft", c.Source.Fingerprint())
	id["steps"] = fmt.Sprint(c.Steps)
	return id
}

// Train trains for TrainConfig.Steps steps and returns the path of the weights. With an OutDir it resumes from the last
// complete checkpoint there, and returns at once if that is the last; a checkpoint of other settings is agl.ErrConflict.
// When ctx ends it makes a checkpoint of the steps done, and returns ctx's error.
//
// The loss of a batch is the mean over its weighted tokens, whatever their number,
// on engines that sum (tinker.Capabilities.SummedLoss).
func Train(ctx context.Context, cfg TrainConfig) (result Result, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return Result{}, err
	}
	model, err := algorithm.OpenModel(ctx, algorithm.ModelParams{
		Service: cfg.Service, Create: cfg.Model,
		Dir: cfg.OutDir, Identity: cfg.identity(), Logger: cfg.Logger,
	})
	if err != nil {
		return Result{}, fmt.Errorf("sft: %w", err)
	}
	defer algorithm.Unload(context.WithoutCancel(ctx), cfg.Logger, model)
	done := model.Restored.Step
	if model.Resumed {
		cfg.Logger.InfoContext(ctx, "supervised training resumes", "step", done, "steps", cfg.Steps)
	}
	cfg.OnStart(done)
	t := &training{client: model.TrainingClient, steps: cfg.Steps, done: done, schedule: cfg.Schedule, adam: cfg.Adam}
	result = Result{Weights: model.Weights, Loss: math.NaN()}
	for step := done; step < cfg.Steps; step++ {
		report, err := t.step(ctx, step, cfg.Source, step)
		if err == nil && (report.Step == cfg.Steps || cfg.OutDir != "" && report.Step%cfg.CheckpointEvery == 0) {
			err = model.Checkpoint(ctx, report.Step, nil)
		}
		if err != nil {
			if ctx.Err() != nil && cfg.OutDir != "" && !t.dirty && t.done > max(model.Saved, 0) {
				algorithm.Keep(ctx, cfg.Logger, func(ctx context.Context) error { return model.Checkpoint(ctx, t.done, nil) })
			}
			return Result{}, fmt.Errorf("sft: step %d: %w", step+1, err)
		}
		result = Result{Weights: model.Weights, Loss: report.Loss}
		cfg.OnStep(report)
	}
	return result, nil
}

// training takes optimizer steps.
type training struct {
	client   tinker.TrainingClient
	steps    int // of the run
	done     int // of these, in the weights
	schedule algorithm.Schedule
	adam     tinker.AdamParams
	dirty    bool               // a step has begun and not ended, so the weights may have changed
	learned  map[*int32]learned // what was computed of each demonstration; nil keeps nothing
}

// step takes the step, counted from 0, on a batch of a source. One that has begun goes on when ctx ends, for ten seconds: it can then be kept.
func (t *training) step(ctx context.Context, step int, source Source, batch int) (StepReport, error) {
	data, err := source.Batch(batch)
	if err != nil {
		return StepReport{}, fmt.Errorf("read batch: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return StepReport{}, err
	}
	start := time.Now()
	ctx, finished := algorithm.Outlast(ctx)
	defer finished()
	scaled, tokens := perToken(data)
	t.dirty = true
	adam := t.adam
	adam.LearningRate = t.schedule.Rate(step, t.steps)
	forward, optim, err := tinker.Step(ctx, t.client, tinker.ForwardParams{Data: scaled, Loss: tinker.Loss{Name: tinker.CrossEntropy}}, adam)
	if err == nil {
		err = tinker.CheckFinite(forward.Loss, optim.GradNorm)
	}
	if err != nil {
		return StepReport{}, err
	}
	t.done, t.dirty = step+1, false
	t.note(t.done, data, forward.Logprobs)
	return StepReport{
		Step: step + 1, Steps: t.steps, Loss: forward.Loss, LearningRate: adam.LearningRate, GradNorm: optim.GradNorm,
		Tokens: tokens, Duration: time.Since(start),
	}, nil
}

// perToken scales the weights of a batch to a sum of 1 and counts its tokens.
func perToken(data []tinker.Datum) (batch []tinker.Datum, tokens int) {
	sum := 0.0
	for i := range data {
		tokens += len(data[i].Targets)
		if data[i].Weights == nil {
			sum += float64(len(data[i].Targets))
		}
		for _, w := range data[i].Weights {
			sum += float64(w)
		}
	}
	scale := float32(1)
	if sum > 0 {
		scale = float32(1 / sum)
	}
	flat := make([]float32, tokens)
	batch = make([]tinker.Datum, len(data))
	for i, d := range data {
		n := len(d.Targets)
		weights := flat[:n:n]
		flat = flat[n:]
		for j := range weights {
			weights[j] = scale
			if d.Weights != nil {
				weights[j] *= d.Weights[j]
			}
		}
		d.Weights = weights
		batch[i] = d
	}
	return batch, tokens
}
