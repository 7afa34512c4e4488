package sft

import (
	"fmt"
	"log/slog"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// TunerConfig configures [NewTuner]. Fields not said to be required may be zero.
type TunerConfig struct {
	// Service is the engine that trains. Required.
	Service tinker.Service
	// Model describes the model to make.
	Model tinker.CreateModelParams
	// InitialWeights is a checkpoint of the engine to start from with a fresh
	// optimizer; empty starts from the base model.
	InitialWeights string
	// Publisher swaps the model that agents call. Nil means that the engine serves
	// its newest sampler snapshot by itself.
	Publisher algorithm.Publisher
	// Flusher is called before spans are read; nil means that nothing records late.
	Flusher algorithm.Flusher
	// Adapter makes sequences of tokens of a rollout's spans; nil means
	// adapter.Trajectories{}, which reads the spans of the proxy.
	Adapter agl.Adapter[adapter.Merged]

	// From has the rollouts to learn from, such as those [Stored], whoever made them,
	// a better model for one: distillation. They are read once, before the first
	// step. Their token ids must be those of the model's vocabulary. Rollouts that did
	// not succeed, and those of validation, are left out. Nil means that the run makes
	// its own: rejection sampling.
	From Rollouts
	// Filter says which rollouts are learned from. Without From it must reject
	// some: no model gets better by all that it does.
	Filter Filter

	// Rounds is how often rollouts are made with what has been learned so far; zero
	// means 1. With From there is 1.
	Rounds int
	// Tasks is how many tasks a round draws; zero draws all of the dataset. With
	// From there are none.
	Tasks int
	// Samples is the number of rollouts of each task in a round; zero means 4.
	Samples int
	// Steps is the number of optimizer steps of a round. Required.
	Steps int
	// Batch is the number of sequences of a step, drawn anew when all have been
	// learned from; zero means 32.
	Batch int
	// Seed decides the order of the tasks and of the sequences, and the seeds in
	// the rollouts' metadata.
	Seed uint64
	// Schedule is the learning rate of each step over all rounds; a zero Peak means
	// 1e-3 all the time.
	Schedule algorithm.Schedule
	// Adam holds the optimizer's other parameters, as in [Config].
	Adam tinker.AdamParams

	// Rollout bounds each attempt, as algorithm grpo's does.
	Rollout agl.RolloutConfig
	// PassReward is the reward from which on a validation task counts as passed;
	// zero means 1.
	PassReward float64
	// Form names the form of a task for the breakdown of pass rates; nil or an
	// empty name leaves it out.
	Form func(task jsontext.Value) string
	// Validation says how the validation dataset is tried: before the first step
	// and after each round.
	Validation Validation

	// OutDir gets metrics.jsonl, one line per step, and checkpoints, from which a
	// later run of the same TunerConfig goes on; empty means neither.
	OutDir string
	// CheckpointEvery is the number of steps between checkpoints where there is
	// From; zero means 200. Each round ends with one, and one of own rollouts has no
	// other: it is made again as it was.
	CheckpointEvery int
	// OnStart is called once, before the first step; OnStep after each step;
	// OnRollouts as rollouts of training or validation finish; OnValidation after
	// each validation. Nil does nothing.
	OnStart      func(done, steps int)
	OnStep       func(Report)
	OnRollouts   func(mode agl.Mode, round, done, total int)
	OnValidation func(step int, r algorithm.Report)
	// Logger gets warnings and what people should know; nil discards it.
	Logger *slog.Logger
}

// Validation configures how the validation dataset is tried.
type Validation struct {
	// N tries only the first N tasks; zero means all.
	N int
	// Sampling, an object, is set in the sampling parameters of the model
	// endpoints; nil leaves those of the resources.
	Sampling jsontext.Value
}

// Report is what a step did: one line of metrics.jsonl. That of step 0 holds the
// validation before training.
type Report struct {
	Step  int `json:"step"` // counted from 1, over all rounds
	Steps int `json:"steps"`
	Round int `json:"round"`
	// Updates is 0 where a round had nothing to learn from.
	Updates      int     `json:"updates"`
	Loss         float64 `json:"loss"` // mean negative log-likelihood per weighted token, in nats
	LearningRate float64 `json:"learning_rate"`
	GradNorm     float64 `json:"grad_norm"` // before clipping
	Tokens       int     `json:"tokens"`    // in the batch, unweighted ones included
	Seconds      float64 `json:"seconds"`
	// Selected is what the round learns from, in its first step.
	Selected *Selected `json:"selected,omitzero"`
	// Validation is the one made after this step, if any.
	Validation      *algorithm.Report `json:"validation,omitzero"`
	ValidateSeconds float64           `json:"validate_seconds,omitzero"`
}

// Totals adds up a run, what was before a resumption included.
type Totals struct {
	Rollouts int                    `json:"rollouts"`        // that the run made, validations included
	Masked   map[algorithm.Mask]int `json:"masked,omitzero"` // of them
}

func (t *Totals) add(rollouts int, masked map[algorithm.Mask]int) {
	t.Rollouts += rollouts
	for mask, n := range masked {
		if t.Masked == nil {
			t.Masked = map[algorithm.Mask]int{}
		}
		t.Masked[mask] += n
	}
}

// Summary is what a run came to.
type Summary struct {
	Step    int     // steps done, those of the runs that were resumed included
	Resumed bool    // a checkpoint was gone on from
	Loss    float64 // of the last step of this process
	Totals  Totals
	// Selected is what the last round learned from.
	Selected *Selected
	// Before and After are the validations before the first step and after the
	// last; nil when there is no validation dataset, or After when the run was cut
	// short. Those of an earlier process have no Results.
	Before, After *algorithm.Report
	// Weights is the path of the last checkpoint's weights, empty when there is
	// none; Snapshot is that of the last sampler snapshot published, with its
	// ResourcesID.
	Weights     string
	Snapshot    string
	ResourcesID string
}

const (
	defaultSamples      = 4
	defaultBatch        = 32
	defaultTunerRate    = 1e-3
	defaultTimeout      = 1200 // seconds
	defaultUnresponsive = 300  // seconds
)

func (c TunerConfig) withDefaults() TunerConfig {
	for _, f := range []struct {
		value *int
		def   int
	}{{&c.Rounds, 1}, {&c.Samples, defaultSamples}, {&c.Batch, defaultBatch}, {&c.CheckpointEvery, defaultCheckpoint}} {
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	c.Adam = withAdamDefaults(c.Adam)
	if c.PassReward == 0 {
		c.PassReward = 1
	}
	if c.Schedule.Peak == 0 {
		c.Schedule = algorithm.Schedule{Peak: defaultTunerRate, Floor: defaultTunerRate}
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
	if c.OnStart == nil {
		c.OnStart = func(int, int) {}
	}
	if c.OnStep == nil {
		c.OnStep = func(Report) {}
	}
	if c.OnRollouts == nil {
		c.OnRollouts = func(agl.Mode, int, int, int) {}
	}
	if c.OnValidation == nil {
		c.OnValidation = func(int, algorithm.Report) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c TunerConfig) validate() error {
	if c.Service == nil {
		return agl.Errorf(agl.CodeInvalid, "sft: Service is nil; an engine is required")
	}
	for _, f := range []struct {
		name       string
		value, min int
	}{
		{"Rounds", c.Rounds, 1}, {"Tasks", c.Tasks, 0}, {"Samples", c.Samples, 1}, {"Steps", c.Steps, 1}, {"Batch", c.Batch, 1},
		{"CheckpointEvery", c.CheckpointEvery, 1}, {"Validation.N", c.Validation.N, 0}, {"Filter.Best", c.Filter.Best, 0},
	} {
		if f.value < f.min {
			return agl.Errorf(agl.CodeInvalid, "sft: %s is %d, must be at least %d", f.name, f.value, f.min)
		}
	}
	switch {
	case c.From != nil && c.Rounds > 1:
		return agl.Errorf(agl.CodeInvalid, "sft: Rounds is %d; with stored rollouts (From) there is 1", c.Rounds)
	case c.From == nil && c.Filter == (Filter{}):
		return agl.Errorf(agl.CodeInvalid, "sft: Filter is empty; without From it needs a MinReward or Best, as a model does not get better by all that it does")
	case c.From == nil && c.Filter.Best >= c.Samples && !c.Filter.MinReward.Valid:
		return agl.Errorf(agl.CodeInvalid, "sft: Filter.Best is %d of %d Samples, which rejects none; take fewer or give a MinReward", c.Filter.Best, c.Samples)
	}
	if err := c.Schedule.Validate(); err != nil {
		return agl.Errorf(agl.CodeInvalid, "sft: %w", err)
	}
	if err := c.Adam.Validate(); err != nil {
		return agl.Errorf(agl.CodeInvalid, "sft: Adam: %w", err)
	}
	if err := c.Rollout.Validate(); err != nil {
		return agl.Errorf(agl.CodeInvalid, "sft: Rollout: %w", err)
	}
	return nil
}

// total is the number of steps of all rounds.
func (c TunerConfig) total() int { return c.Rounds * c.Steps }

// identity is what a checkpoint must agree on to be gone on from.
func (c TunerConfig) identity(data string) map[string]string {
	minReward := "none"
	if c.Filter.MinReward.Valid {
		minReward = fmt.Sprint(c.Filter.MinReward.V)
	}
	steps := fmt.Sprintf("steps=%d batch=%d", c.Steps, c.Batch)
	if !c.Schedule.Constant() {
		steps += fmt.Sprintf(" rounds=%d", c.Rounds)
	}
	rounds := "stored rollouts"
	if c.From == nil {
		rounds = fmt.Sprintf("tasks=%d samples=%d", c.Tasks, c.Samples)
	}
	return map[string]string{
		"algorithm":  "sft on rollouts",
		"model":      fmt.Sprintf("%s lora_rank=%d", c.Model.BaseModel, c.Model.LoRARank),
		"model_seed": fmt.Sprint(c.Model.Seed),
		"seed":       fmt.Sprint(c.Seed),
		"data":       data,
		"rollouts":   rounds,
		"filter":     fmt.Sprintf("min_reward=%s best=%d", minReward, c.Filter.Best),
		"steps":      steps,
		"schedule":   c.Schedule.String(),
		"adam":       describeAdam(c.Adam),
	}
}
