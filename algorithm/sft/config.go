package sft

import (
	"cmp"
	"fmt"
	"math"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// Config configures [New]. Fields that are not required may be zero.
type Config struct {
	algorithm.RunConfig
	// TrainingConfig.CheckpointEvery defaults to 200. Each round of own rollouts has further checkpoints when these have finished, and at
	// its end.
	algorithm.TrainingConfig

	// From has existing rollouts to learn from, such as those of [Stored]. If a better model made them, this is
	// distillation. They are read once, before the first step. Their token ids must be those of the model's vocabulary.
	// Rollouts that did not succeed, and those of validation, are left out. A rollout with calls of
	// ModelName is learned from by these alone, not by those of other models, such as a judge. Nil means that the run samples its own: rejection sampling.
	From Rollouts
	// Filter selects the rollouts to learn from. Without From it must reject some:
	// training on all of its own rollouts improves no model.
	Filter Filter

	// Rounds is the number of times that rollouts are sampled with the current weights; zero means 1. With From it is 1.
	Rounds int
	// Tasks is the number of tasks of a round; zero takes the whole dataset. Not used with From.
	Tasks int
	// Samples is the number of rollouts of each task in a round; zero means 4.
	Samples int
	// Steps is the number of optimizer steps of a round. Required.
	Steps int
	// Batch is the number of sequences of a step; zero means 32.
	Batch int

	// OnStep is called after each step; nil does nothing.
	OnStep func(Report)
}

// Report is the report of a step: one line of metrics.jsonl. That of step 0 has the validation before training.
type Report struct {
	Step  int `json:"step"` // from 1, over all rounds
	Steps int `json:"steps"`
	Round int `json:"round"`
	// Updates is 0 if the round had nothing to learn from.
	Updates      int     `json:"updates"`
	Loss         float64 `json:"loss"` // mean negative log-likelihood per weighted token, in nats
	LearningRate float64 `json:"learning_rate"`
	GradNorm     float64 `json:"grad_norm"` // before clipping
	Tokens       int     `json:"tokens"`    // of the batch, unweighted ones included
	Seconds      float64 `json:"seconds"`
	// Selected is what the round learns from, in its first step.
	Selected *Selected `json:"selected,omitzero"`
	// Validation is the one made after this step, if any.
	Validation      *algorithm.Report `json:"validation,omitzero"`
	ValidateSeconds float64           `json:"validate_seconds,omitzero"`
}

// Summary is the result of a run.
type Summary struct {
	algorithm.Summary

	Loss float64 // of the last step of this process
	// Selected is what the last round learned from.
	Selected *Selected
}

func (c Config) withDefaults() Config {
	c.RunConfig, c.TrainingConfig = c.RunConfig.WithDefaults(), c.TrainingConfig.WithDefaults()
	c.Rounds = cmp.Or(c.Rounds, 1)
	c.Samples = cmp.Or(c.Samples, 4)
	c.Batch = cmp.Or(c.Batch, 32)
	c.CheckpointEvery = cmp.Or(c.CheckpointEvery, 200)
	if c.OnStep == nil {
		c.OnStep = func(Report) {}
	}
	return c
}

func (c Config) validate() error {
	if err := cmp.Or(c.TrainingConfig.Validate(), c.RunConfig.Validate(), algorithm.AtLeast(
		algorithm.Minimum{Field: "Rounds", Value: c.Rounds, Least: 1},
		algorithm.Minimum{Field: "Tasks", Value: c.Tasks},
		algorithm.Minimum{Field: "Samples", Value: c.Samples, Least: 1},
		algorithm.Minimum{Field: "Steps", Value: c.Steps, Least: 1},
		algorithm.Minimum{Field: "Batch", Value: c.Batch, Least: 1},
		algorithm.Minimum{Field: "Filter.Best", Value: c.Filter.Best},
	),
		algorithm.AtMost(algorithm.MaxBatch, algorithm.Factor{Field: "Batch", Value: c.Batch}),
		algorithm.AtMost(algorithm.MaxRollouts, algorithm.Factor{Field: "Samples", Value: c.Samples}),
		algorithm.AtMost(maxSteps, algorithm.Factor{Field: "Rounds", Value: c.Rounds}, algorithm.Factor{Field: "Steps", Value: c.Steps}),
	); err != nil {
		return invalid("%w", err)
	}
	switch {
	case c.From != nil && c.Rounds > 1:
		return invalid("Rounds is %d; with existing rollouts (From) it must be 1", c.Rounds)
	case c.From == nil && c.Filter == (Filter{}):
		return invalid("Filter is empty; without From it needs MinReward or Best, as training on all of its own rollouts improves no model")
	case c.From == nil && c.Filter.Best >= c.Samples && !c.Filter.MinReward.Valid:
		return invalid("Filter.Best is %d of %d Samples, which rejects none; lower it or set MinReward", c.Filter.Best, c.Samples)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, "sft: "+format, args...)
}

// maxSteps bounds the steps of all rounds, which are counted in an int.
const maxSteps = min(1<<53, math.MaxInt)

// total is the number of steps of all rounds.
func (c Config) total() int { return c.Rounds * c.Steps }

// identity is what a checkpoint must agree on before a run resumes from it.
func (c Config) identity(data string) map[string]string {
	minReward := "none"
	if c.Filter.MinReward.Valid {
		minReward = fmt.Sprint(c.Filter.MinReward.V)
	}
	id := c.Identity("sft on rollouts", data)
	id["seed"] = fmt.Sprint(c.Seed)
	id["filter"] = fmt.Sprintf("min_reward=%s best=%d", minReward, c.Filter.Best)
	id["steps"] = fmt.Sprintf("steps=%d batch=%d", c.Steps, c.Batch)
	if !c.Schedule.Constant() {
		id["steps"] += fmt.Sprintf(" rounds=%d", c.Rounds)
	}
	id["rollouts"] = "stored rollouts"
	if c.From == nil {
		id["rollouts"] = fmt.Sprintf("tasks=%d samples=%d", c.Tasks, c.Samples)
	}
	return id
}
