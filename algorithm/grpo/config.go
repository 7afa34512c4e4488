package grpo

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// Config configures [New]. Fields not said to be required may be zero.
type Config struct {
	// Service is the engine that trains. Required.
	Service tinker.Service
	// Model describes the model to make.
	Model tinker.CreateModelParams
	// InitialWeights is a checkpoint of the engine to start from with a fresh
	// optimizer; empty starts from the base model.
	InitialWeights string
	// Publisher swaps the model that agents call. Nil means that the engine serves
	// its newest sampler snapshot by itself.
	Publisher Publisher
	// Flusher is called before spans are read; nil means that nothing records late.
	Flusher algorithm.Flusher
	// Adapter makes sequences of tokens of a rollout's spans; nil means
	// adapter.Trajectories{}, which reads the spans of the proxy.
	Adapter agl.Adapter[adapter.Merged]
	// Source hands out the tasks; nil goes through the train dataset, reshuffled
	// each epoch.
	Source Source

	// Steps is the number of steps. Required. A resumed run may have more.
	Steps int
	// PromptsPerStep is the number of tasks of a step; zero means 16.
	PromptsPerStep int
	// GroupSize is the number of rollouts of each task, at least 2; zero means 8.
	GroupSize int
	// Seed decides the order of the tasks and the seeds in the rollouts' metadata.
	Seed uint64

	// Loss is importance_sampling (when its name is empty), ppo, cispo or dro. An
	// engine that lacks it is agl.ErrUnimplemented before any rollout is enqueued.
	// dro takes advantages in units of the reward, so it needs PlainAdvantage or
	// LeaveOneOut.
	Loss tinker.Loss
	// Minibatches is the number of optimizer steps into which the data of a step
	// is divided; zero means 1, which keeps the first update on-policy.
	Minibatches int
	// Schedule is the learning rate of each step; a zero Peak means 1e-3 all the
	// time. A rate that falls makes the end of a run depend on Steps, which a
	// resumed run then cannot change.
	Schedule algorithm.Schedule
	// Adam holds the optimizer's other parameters; LearningRate is not used. A
	// zero Beta2 means 0.98 and a zero GradClipNorm 1; other zero values are the
	// protocol's.
	Adam tinker.AdamParams
	// Baseline is what a rollout's reward is compared with; empty means GroupMean.
	Baseline Baseline
	// PlainAdvantage leaves out the division by the standard deviation, as Dr.
	// GRPO does (arXiv:2503.20783, §3.2). LeaveOneOut never divides.
	PlainAdvantage bool
	// KL holds the model near a reference.
	KL KL
	// MaskTruncated leaves rollouts with a reply that was cut, because it or the
	// context was full, out of the loss: the overlong filtering of DAPO
	// (arXiv:2503.14476, §3.4). Their rewards still count in the group, so a cut
	// rollout that failed says that the others did well and nothing of its own
	// tokens. By default they are learned from like all others, which teaches
	// to come to an end where the limit is meant.
	MaskTruncated bool
	// LengthNormalization gives every rollout the same weight, whatever its number
	// of sampled tokens: the 1/|oᵢ| of DeepSeekMath's eq. 3.
	LengthNormalization bool

	// Rollout bounds each attempt. Null TimeoutSeconds means 1200 s and null
	// UnresponsiveSeconds 300 s, so that neither an agent that never answers nor a
	// runner that died can stop training.
	Rollout agl.RolloutConfig
	// PassReward is the reward from which on a rollout counts as passed; zero means 1.
	PassReward float64
	// Form names the form of a task for the breakdown of pass rates; nil or an
	// empty name leaves it out.
	Form func(task jsontext.Value) string
	// Validation says when and how the validation dataset is tried.
	Validation Validation

	// OutDir gets metrics.jsonl, one line per step, and checkpoints, from which a
	// later run of the same Config goes on; empty means neither.
	OutDir string
	// CheckpointEvery is the number of steps between checkpoints; zero means 25.
	// The last step makes one in any case.
	CheckpointEvery int
	// Progress is told what happens; nil is nobody.
	Progress Progress
	// Logger gets warnings and what people should know; nil discards it.
	Logger *slog.Logger
}

// Validation configures how the validation dataset is tried. When there is one,
// it is tried before the first step and after the last.
type Validation struct {
	// Every is the number of steps between validations in between; zero means none.
	Every int
	// N tries only the first N tasks; zero means all.
	N int
	// Sampling, an object, is set in the sampling parameters of the model
	// endpoints; nil leaves those of the resources, as in training.
	Sampling jsontext.Value
}

const (
	defaultPrompts      = 16
	defaultGroup        = 8
	defaultLearningRate = 1e-3
	defaultBeta2        = 0.98
	defaultClip         = 1
	defaultTimeout      = 1200 // seconds
	defaultUnresponsive = 300  // seconds
	defaultCheckpoint   = 25
)

func (c Config) withDefaults() Config {
	for _, f := range []struct {
		value *int
		def   int
	}{
		{&c.PromptsPerStep, defaultPrompts}, {&c.GroupSize, defaultGroup},
		{&c.Minibatches, 1}, {&c.CheckpointEvery, defaultCheckpoint},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	for _, f := range []struct {
		value *float64
		def   float64
	}{
		{&c.Adam.Beta2, defaultBeta2},
		{&c.Adam.GradClipNorm, defaultClip}, {&c.PassReward, 1},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	if c.Schedule.Peak == 0 {
		c.Schedule = algorithm.Schedule{Peak: defaultLearningRate, Floor: defaultLearningRate}
	}
	c.Loss.Name = c.Losses()[0]
	if c.Baseline == "" {
		c.Baseline = GroupMean
	}
	c.Rollout = c.Rollout.WithDefaults()
	if !c.Rollout.TimeoutSeconds.Valid {
		c.Rollout.TimeoutSeconds = agl.Some[float64](defaultTimeout)
	}
	if !c.Rollout.UnresponsiveSeconds.Valid {
		c.Rollout.UnresponsiveSeconds = agl.Some[float64](defaultUnresponsive)
	}
	if c.Adapter == nil {
		c.Adapter = adapter.Trajectories{}
	}
	if c.Progress == nil {
		c.Progress = UnimplementedProgress{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Losses are those that the engine must have: Loss and, with KL, cross_entropy, by
// which the reference is asked for log-probabilities.
func (c Config) Losses() []tinker.LossName {
	losses := []tinker.LossName{cmp.Or(c.Loss.Name, tinker.ImportanceSampling)}
	if c.KL.Coefficient != 0 {
		losses = append(losses, tinker.CrossEntropy)
	}
	return losses
}

func (c Config) validate() error {
	if c.Service == nil {
		return invalid("Service is nil; an engine is required")
	}
	for _, f := range []struct {
		name       string
		value, min int
	}{
		{"Steps", c.Steps, 1},
		{"PromptsPerStep", c.PromptsPerStep, 1},
		{"GroupSize", c.GroupSize, 2},
		{"Minibatches", c.Minibatches, 1},
		{"CheckpointEvery", c.CheckpointEvery, 1},
		{"Validation.Every", c.Validation.Every, 0},
		{"Validation.N", c.Validation.N, 0},
	} {
		if f.value < f.min {
			return invalid("%s is %d, must be at least %d", f.name, f.value, f.min)
		}
	}
	if c.Loss.Name == tinker.CrossEntropy {
		return invalid("Loss is %q; allowed are %q", c.Loss.Name, tinker.LossNames()[1:])
	}
	if err := c.Loss.Validate(); err != nil {
		return invalid("%w", err)
	}
	if !slices.Contains(Baselines(), c.Baseline) {
		return invalid("Baseline is %q; allowed are %q", c.Baseline, Baselines())
	}
	if c.Loss.Name == tinker.DRO && c.Baseline != LeaveOneOut && !c.PlainAdvantage {
		return invalid("Loss is %q, which needs advantages that are divided by nothing: PlainAdvantage or the Baseline %q", tinker.DRO, LeaveOneOut)
	}
	if !(c.KL.Coefficient >= 0) || math.IsInf(c.KL.Coefficient, 0) {
		return invalid("KL.Coefficient is %v, must be a finite number ≥ 0", c.KL.Coefficient)
	}
	if c.KL.Reference != "" {
		if c.KL.Coefficient == 0 {
			return invalid("KL.Reference is %q without a Coefficient", c.KL.Reference)
		}
		if p, err := tinker.ParsePath(c.KL.Reference); err != nil || p.Kind != tinker.KindCheckpoint {
			return invalid("KL.Reference is %q, must be a checkpoint, tinker://<model>/weights/<name>", c.KL.Reference)
		}
	}
	if err := c.Schedule.Validate(); err != nil {
		return invalid("%w", err)
	}
	if err := c.Adam.Validate(); err != nil {
		return invalid("Adam: %w", err)
	}
	if err := c.Rollout.Validate(); err != nil {
		return invalid("Rollout: %w", err)
	}
	return nil
}

// identity is what a checkpoint must agree on to be gone on from.
func (c Config) identity(source Source) map[string]string {
	loss := c.Loss.WithDefaults()
	adam := c.Adam.WithDefaults()
	losses := fmt.Sprintf("%s clip=[%v, %v] plain_advantage=%t length_normalization=%t", loss.Name, loss.ClipLow, loss.ClipHigh, c.PlainAdvantage, c.LengthNormalization)
	if loss.Name == tinker.DRO {
		losses += fmt.Sprintf(" beta=%v", loss.Beta)
	}
	// What is off is not named, so that older checkpoints are still the same run's.
	if c.Baseline != GroupMean {
		losses += fmt.Sprintf(" baseline=%s", c.Baseline)
	}
	if c.KL.Coefficient != 0 {
		losses += fmt.Sprintf(" kl=%v reference=%q", c.KL.Coefficient, c.reference())
	}
	if c.MaskTruncated {
		losses += " mask_truncated=true"
	}
	schedule := c.Schedule.String()
	if !c.Schedule.Constant() {
		schedule += fmt.Sprintf(" over %d steps", c.Steps)
	}
	return map[string]string{
		"algorithm":  "grpo",
		"model":      fmt.Sprintf("%s lora_rank=%d", c.Model.BaseModel, c.Model.LoRARank),
		"model_seed": fmt.Sprint(c.Model.Seed),
		"seed":       fmt.Sprint(c.Seed),
		"data":       source.Fingerprint(),
		"batch":      fmt.Sprintf("prompts=%d group=%d minibatches=%d", c.PromptsPerStep, c.GroupSize, c.Minibatches),
		"loss":       losses,
		"schedule":   schedule,
		"adam": fmt.Sprintf("beta1=%v beta2=%v eps=%v weight_decay=%v grad_clip_norm=%v",
			adam.Beta1, adam.Beta2, adam.Eps, adam.WeightDecay, adam.GradClipNorm),
	}
}

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, "grpo: "+format, args...)
}
