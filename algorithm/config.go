package algorithm

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/tinker"
)

// RunConfig holds the settings that every algorithm shares. Every field may be zero.
type RunConfig struct {
	// Flusher is called before spans are read; nil means that no calls are recorded late.
	Flusher Flusher
	// Rollout limits each attempt.
	Rollout agl.RolloutConfig
	// Seed decides every random choice, and the seeds in the rollouts' metadata.
	Seed uint64
	// OutDir is the folder of the run, from which a later run with the same settings
	// resumes; empty keeps nothing. Two runs must not share it.
	OutDir string
	// RunID names a new run in its rollouts' metadata; empty makes an id.
	RunID string
	// Progress is called as the run proceeds.
	Progress Progress
	// OnMetrics is called with each new line of metrics.jsonl, also without an OutDir; nil does nothing. It is not called with lines that a
	// resumed run restores (see [Session.RestoreMetrics]). It must not keep the line.
	OnMetrics func(ctx context.Context, line []byte)
	// Logger gets warnings and information for people; nil discards it.
	Logger *slog.Logger
}

// WithDefaults fills in zero fields. By default an attempt times out after 1200 s, or after 300 s without a heartbeat, so
// that neither a hanging agent nor a dead runner can stop the run.
func (c RunConfig) WithDefaults() RunConfig {
	c.Rollout = c.Rollout.WithDefaults()
	if !c.Rollout.TimeoutSeconds.Valid {
		c.Rollout.TimeoutSeconds = agl.Some[float64](1200)
	}
	if !c.Rollout.UnresponsiveSeconds.Valid {
		c.Rollout.UnresponsiveSeconds = agl.Some[float64](300)
	}
	c.Progress = c.Progress.withDefaults()
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate names the first field that is out of range.
func (c RunConfig) Validate() error {
	if err := c.Rollout.Validate(); err != nil {
		return agl.Errorf(agl.CodeInvalid, "Rollout: %w", err)
	}
	return nil
}

// TrainingConfig holds the settings shared by algorithms that train weights on rollouts.
// Fields that are not required may be zero.
type TrainingConfig struct {
	// Service is the engine that trains. Required.
	Service tinker.Service
	// Model describes the model to create.
	Model tinker.CreateModelParams
	// InitialWeights is a checkpoint of the engine to start from, with a fresh optimizer; empty starts from the base model.
	InitialWeights string
	// Origin says what InitialWeights are, such as the file of a warm start, where their path does not say it. A run that resumes must
	// agree on it; empty leaves it open.
	Origin string
	// Publisher swaps the model that agents call. Nil means that the engine serves its newest sampler snapshot by itself.
	Publisher Publisher
	// ModelName is the name under which agents request the model in training. Calls that request another model are not trained on.
	// If it is empty, the version that was recorded with a call decides, and a call without one counts.
	ModelName string
	// ProcessedLogprobs says that the log-probabilities are of the distribution that the samples came from, whatever the sampling
	// parameters, as with vLLM's --logprobs-mode processed_logprobs. Engines of the Tinker protocol return those of temperature
	// 1. Without it, rollouts with calls of another temperature, or of a truncated distribution, are masked.
	ProcessedLogprobs bool
	// Adapter turns the spans of a rollout into token sequences; nil means
	// adapter.Trajectories{}, which reads the spans of the proxy.
	Adapter agl.Adapter[adapter.Merged]
	// Schedule is the learning rate of each step; a zero Peak means a constant 1e-3. With a rate that falls, the end of a
	// run depends on the number of steps, which then cannot change when the run resumes.
	Schedule Schedule
	// Adam holds the other parameters of the optimizer; LearningRate is not used. A zero Beta2 means 0.98 and a zero
	// GradClipNorm 1; other zero values have the protocol's defaults.
	Adam tinker.AdamParams
	// PassReward is the reward from which a rollout counts as passed; zero means 1.
	PassReward float64
	// Form names the form of a task, for pass rates by form; nil or an empty name leaves it out.
	Form func(task jsontext.Value) string
	// Validation configures the runs of the validation dataset.
	Validation Validation
	// CheckpointEvery is the number of steps between checkpoints in OutDir; zero
	// leaves it to the algorithm. The last step always makes one.
	CheckpointEvery int
}

// Validation configures the runs of the validation dataset.
type Validation struct {
	// N runs only the first N tasks; zero runs all.
	N int
	// Sampling is an object whose members are set in the sampling parameters of the
	// model endpoints; nil keeps those of training.
	Sampling jsontext.Value
}

// WithDefaults fills in zero fields.
func (c TrainingConfig) WithDefaults() TrainingConfig {
	if c.Schedule.Peak == 0 {
		c.Schedule = Schedule{Peak: 1e-3, Floor: 1e-3}
	}
	c.Adam = AdamWithDefaults(c.Adam)
	c.PassReward = cmp.Or(c.PassReward, 1)
	if c.Adapter == nil {
		c.Adapter = adapter.Trajectories{}
	}
	return c
}

// AdamWithDefaults sets Beta2 and GradClipNorm where they are zero.
func AdamWithDefaults(p tinker.AdamParams) tinker.AdamParams {
	const beta2 = 0.98
	p.Beta2, p.GradClipNorm = cmp.Or(p.Beta2, beta2), cmp.Or(p.GradClipNorm, 1)
	return p
}

// Validate names the first field that is out of range.
func (c TrainingConfig) Validate() error {
	if c.Service == nil {
		return agl.Errorf(agl.CodeInvalid, "Service is nil; an engine is required")
	}
	if err := AtLeast(Minimum{"CheckpointEvery", c.CheckpointEvery, 1}, Minimum{"Validation.N", c.Validation.N, 0}); err != nil {
		return err
	}
	if err := c.Schedule.Validate(); err != nil {
		return err
	}
	if err := c.Adam.Validate(); err != nil {
		return agl.Errorf(agl.CodeInvalid, "Adam: %w", err)
	}
	return nil
}

// Identity is what a checkpoint must agree on before a run resumes from it: these
// settings, the algorithm and a fingerprint of its data.
func (c TrainingConfig) Identity(algorithm, data string) map[string]string {
	a := c.Adam
	return map[string]string{
		"algorithm":  algorithm,
		"model":      fmt.Sprintf("%s lora_rank=%d", c.Model.BaseModel, c.Model.LoRARank),
		"model_seed": fmt.Sprint(c.Model.Seed),
		"data":       data,
		"schedule":   c.Schedule.String(),
		"adam": fmt.Sprintf("beta1=%v beta2=%v eps=%v weight_decay=%v grad_clip_norm=%v",
			a.Beta1, a.Beta2, a.Eps, a.WeightDecay, a.GradClipNorm),
	}
}

// Minimum is a field of a configuration with its smallest value.
type Minimum struct {
	Field        string
	Value, Least int
}

// MaxRollouts bounds the rollouts that an algorithm has open together. Each takes memory from when it is enqueued.
const MaxRollouts = 10_000_000

// MaxBatch bounds the sequences of a step of training, which are in memory together.
const MaxBatch = 1_000_000

// Factor is a field of a configuration, or a number of tasks, whose product with others is bounded.
type Factor struct {
	Field string
	Value int
}

// AtMost names the factors whose product is above a bound. The product is one of floats: that of integers could overflow.
func AtMost(most int, factors ...Factor) error {
	product, names := 1.0, make([]string, len(factors))
	for i, f := range factors {
		product *= float64(f.Value)
		names[i] = fmt.Sprintf("%s (%d)", f.Field, f.Value)
	}
	switch {
	case product <= float64(most):
		return nil
	case len(factors) == 1:
		return agl.Errorf(agl.CodeInvalid, "%s is %d, must be at most %d", factors[0].Field, factors[0].Value, most)
	default:
		return agl.Errorf(agl.CodeInvalid, "%s is %.0f, must be at most %d", strings.Join(names, " times "), product, most)
	}
}

// AtLeast names the first field that is below its minimum.
func AtLeast(fields ...Minimum) error {
	for _, f := range fields {
		if f.Value < f.Least {
			return agl.Errorf(agl.CodeInvalid, "%s is %d, must be at least %d", f.Field, f.Value, f.Least)
		}
	}
	return nil
}
