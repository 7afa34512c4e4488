package sft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/tinker"
)

// Config configures [Train].
type Config struct {
	// Service is the engine that trains. Required.
	Service tinker.Service
	// Model describes the model to make.
	Model tinker.CreateModelParams
	// InitialWeights is a checkpoint of the engine to start from with a fresh
	// optimizer; empty starts from the base model.
	InitialWeights string
	// Source hands out the batches. Required.
	Source Source
	// Steps is the number of optimizer steps. Required.
	Steps int
	// Schedule is the learning rate of each step. Its Peak is required.
	Schedule algorithm.Schedule
	// Adam holds the other parameters of the optimizer; LearningRate is not used.
	// A zero Beta2 means 0.98 and a zero GradClipNorm means 1, other zero values
	// are the protocol's.
	Adam tinker.AdamParams
	// OutDir holds checkpoints, from which a later Train with the same Config goes
	// on; empty means none.
	OutDir string
	// CheckpointEvery is the number of steps between checkpoints; zero means 200.
	// The last step makes one in any case.
	CheckpointEvery int
	// OnStart is called once, before the first step, with the number of steps that
	// a checkpoint has already done; nil does nothing.
	OnStart func(done int)
	// OnStep is called after each step; nil does nothing.
	OnStep func(StepReport)
	// Logger gets what people should know; nil discards it.
	Logger *slog.Logger
}

// StepReport is what a step did.
type StepReport struct {
	Step         int     // counted from 1
	Steps        int     // of the whole run
	Loss         float64 // mean negative log-likelihood per weighted token, in nats
	LearningRate float64
	GradNorm     float64 // before clipping
	Tokens       int     // in the batch, unweighted ones included
	Duration     time.Duration
}

// Result is what [Train] leaves behind.
type Result struct {
	// Weights is the path of the final checkpoint, for
	// tinker.TrainingClient.LoadWeights. The engine keeps it.
	Weights string
	// Loss is that of the last step, NaN when a checkpoint had already done all.
	Loss float64
}

const defaultCheckpoint = 200

func withAdamDefaults(p tinker.AdamParams) tinker.AdamParams {
	if p.Beta2 == 0 {
		p.Beta2 = 0.98
	}
	if p.GradClipNorm == 0 {
		p.GradClipNorm = 1
	}
	return p
}

func describeAdam(p tinker.AdamParams) string {
	return fmt.Sprintf("beta1=%v beta2=%v eps=%v weight_decay=%v grad_clip_norm=%v", p.Beta1, p.Beta2, p.Eps, p.WeightDecay, p.GradClipNorm)
}

func (c Config) withDefaults() Config {
	c.Adam = withAdamDefaults(c.Adam)
	if c.CheckpointEvery == 0 {
		c.CheckpointEvery = defaultCheckpoint
	}
	if c.OnStart == nil {
		c.OnStart = func(int) {}
	}
	if c.OnStep == nil {
		c.OnStep = func(StepReport) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Service == nil:
		return agl.Errorf(agl.CodeInvalid, "sft: Service is nil; an engine is required")
	case c.Source == nil:
		return agl.Errorf(agl.CodeInvalid, "sft: Source is nil; data is required")
	case c.Steps < 1:
		return agl.Errorf(agl.CodeInvalid, "sft: Steps is %d, must be at least 1", c.Steps)
	case c.CheckpointEvery < 1:
		return agl.Errorf(agl.CodeInvalid, "sft: CheckpointEvery is %d, must be at least 1", c.CheckpointEvery)
	}
	if err := c.Schedule.Validate(); err != nil {
		return agl.Errorf(agl.CodeInvalid, "sft: %w", err)
	}
	if err := c.Adam.Validate(); err != nil {
		return agl.Errorf(agl.CodeInvalid, "sft: Adam: %w", err)
	}
	return nil
}

// identity is what a checkpoint must agree on to be gone on from.
func (c Config) identity() map[string]string {
	return map[string]string{
		"algorithm":  "sft",
		"model":      fmt.Sprintf("%s lora_rank=%d", c.Model.BaseModel, c.Model.LoRARank),
		"model_seed": fmt.Sprint(c.Model.Seed),
		"data":       c.Source.Fingerprint(),
		"steps":      fmt.Sprint(c.Steps),
		"schedule":   c.Schedule.String(),
		"adam":       describeAdam(c.Adam),
	}
}

// Train trains for Config.Steps steps and returns the path of the weights. With
// an OutDir it goes on from the last complete checkpoint there and returns at
// once when that is the last; a checkpoint of other settings is agl.ErrConflict.
// When ctx ends it returns ctx's error and leaves the last checkpoint whole.
//
// The loss of a batch is the mean over its weighted tokens, whatever their
// number, on engines that sum (tinker.Capabilities.SummedLoss).
func Train(ctx context.Context, cfg Config) (result Result, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return Result{}, err
	}
	t := &training{Config: cfg, identity: cfg.identity()}
	if cfg.OutDir != "" {
		t.checkpoints, err = algorithm.OpenCheckpoints(algorithm.CheckpointsConfig{Dir: cfg.OutDir, Service: cfg.Service, Logger: cfg.Logger})
		if err != nil {
			return Result{}, fmt.Errorf("sft: %w", err)
		}
	}
	client, checkpoint, resumed, err := algorithm.OpenModel(ctx, algorithm.Model{
		Service: cfg.Service, Create: cfg.Model, InitialWeights: cfg.InitialWeights,
		Checkpoints: t.checkpoints, Identity: t.identity,
	})
	if err != nil {
		return Result{}, fmt.Errorf("sft: %w", err)
	}
	t.client = client
	defer func() { err = errors.Join(err, client.Unload(context.WithoutCancel(ctx))) }()
	if resumed {
		cfg.Logger.InfoContext(ctx, "supervised training resumes", "step", checkpoint.Step, "steps", cfg.Steps)
	}
	return t.run(ctx, checkpoint)
}

// training is a run of Train.
type training struct {
	Config
	identity    map[string]string
	client      tinker.TrainingClient
	checkpoints *algorithm.Checkpoints // nil when there is no OutDir
}

func (t *training) run(ctx context.Context, from algorithm.Checkpoint) (Result, error) {
	result := Result{Weights: from.Weights, Loss: math.NaN()}
	t.OnStart(from.Step)
	for step := from.Step; step < t.Steps; step++ {
		report, err := t.step(ctx, step)
		if err != nil {
			return Result{}, fmt.Errorf("sft: step %d: %w", step+1, err)
		}
		done := step + 1
		if done == t.Steps || t.checkpoints != nil && done%t.CheckpointEvery == 0 {
			if result.Weights, err = t.save(ctx, done); err != nil {
				return Result{}, fmt.Errorf("sft: %w", err)
			}
		}
		result.Loss = report.Loss
		t.OnStep(report)
	}
	return result, nil
}

// step makes the optimizer step that is counted from 0.
func (t *training) step(ctx context.Context, step int) (StepReport, error) {
	start := time.Now()
	data, err := t.Source.Batch(step)
	if err != nil {
		return StepReport{}, fmt.Errorf("read batch: %w", err)
	}
	batch, tokens := perToken(data)
	forward, err := t.client.ForwardBackward(ctx, tinker.ForwardParams{Data: batch, Loss: tinker.Loss{Name: tinker.CrossEntropy}})
	if err != nil {
		return StepReport{}, fmt.Errorf("forward and backward: %w", err)
	}
	adam := t.Adam
	adam.LearningRate = t.Schedule.Rate(step, t.Steps)
	optim, err := t.client.OptimStep(ctx, adam)
	if err != nil {
		return StepReport{}, fmt.Errorf("optimizer: %w", err)
	}
	return StepReport{
		Step: step + 1, Steps: t.Steps, Loss: forward.Loss, LearningRate: adam.LearningRate, GradNorm: optim.GradNorm,
		Tokens: tokens, Duration: time.Since(start),
	}, nil
}

// save makes a checkpoint after so many steps.
func (t *training) save(ctx context.Context, steps int) (weights string, err error) {
	weights, err = t.client.SaveWeights(ctx, tinker.SaveWeightsParams{Name: fmt.Sprintf("step-%08d", steps)})
	if err != nil {
		return "", fmt.Errorf("save weights: %w", err)
	}
	if t.checkpoints == nil {
		return weights, nil
	}
	if err := t.checkpoints.Pend(weights); err != nil {
		return "", err
	}
	err = t.checkpoints.Save(ctx, algorithm.Checkpoint{Step: steps, Weights: weights, Identity: t.identity, State: rawjson.Null()})
	return weights, err
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
