package apo

import (
	"cmp"
	"math"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// Config configures [New]. Fields that are not required may be zero.
type Config struct {
	// RunConfig.OutDir gets journal.jsonl, from which a later run of the same Config
	// resumes; and report.json and metrics.jsonl, which are written after every round.
	algorithm.RunConfig

	// GradientModel critiques prompts. Required.
	GradientModel Model
	// EditModel rewrites them; nil means GradientModel.
	EditModel Model
	// GradientPrice is the price of GradientModel.
	GradientPrice Price
	// EditPrice is the price of EditModel; not used if that is nil.
	EditPrice Price
	// Budget ends the search when it is spent.
	Budget Budget
	// Temperature of both models; null means 1.
	Temperature agl.Null[float64]
	// Attempts is the number of requests for one critique or one usable edit before the edit is abandoned; zero means 3.
	Attempts int

	// BeamWidth is the number of candidates that survive a round; zero means 4.
	BeamWidth int
	// BranchFactor is the number of edits of each parent; zero means 4.
	BranchFactor int
	// Rounds is the number of rounds; zero means 3, and in a live run no end. A resumed run may have more.
	Rounds int
	// GradientBatch is the number of training tasks that a critique sees, at most the training dataset; zero means 4.
	GradientBatch int
	// ValBatch is the number of validation tasks on which the candidates of a round are compared, at most the validation
	// dataset; zero means 16. They are drawn anew each round.
	ValBatch int
	// SkipInitialValidation skips the run of the validation dataset with the seed prompts before the first round. The first
	// leader then replaces the seed without a comparison. The final comparison still decides.
	SkipInitialValidation bool
	// FinalSamples is the number of rollouts of each validation task in the final comparison, for the seed and for the best;
	// zero means 1. More make its interval narrower.
	FinalSamples int
	// Level is the coverage of intervals, in (0, 1); zero means 0.95.
	Level float64
	// Resamples is the number of bootstrap samples of an interval; zero means 2000.
	Resamples int

	// CritiquePrompts are the requests for a critique, one of which is drawn for each edit, as Go templates (text/template)
	// of a [CritiqueData]; nil means [DefaultCritiquePrompts].
	CritiquePrompts []string
	// EditPrompts are the requests for an edit, as Go templates of an [EditData]; nil means [DefaultEditPrompts].
	EditPrompts []string
	// ExperimentBytes limits the messages, and the spans, of one rollout in a request
	// for a critique: the middle of longer ones is left out. Zero means 8 KiB.
	ExperimentBytes int

	// Concurrency is the number of edits that are made, and of candidates that are
	// evaluated, at the same time; zero means 8.
	Concurrency int
	// BatchTimeout limits the wait for the rollouts of an evaluation. Those that have
	// not finished are cancelled and masked as timeouts. Zero means 1 h.
	BatchTimeout time.Duration
	// OnSeed is called when the first prompts have been validated; nil does nothing. A live run does not validate them.
	OnSeed func(Candidate)
	// OnRound is called after every round; nil does nothing. A live run calls Live.OnRound instead.
	OnRound func(Round)

	// Live makes the run learn from rollouts that others start; nil makes it start its own.
	Live *Live
}

// DefaultRounds is the number of rounds of a Config that names none.
const DefaultRounds = 3

func (c Config) withDefaults() Config {
	c.RunConfig = c.WithDefaults()
	c.Attempts = cmp.Or(c.Attempts, 3)
	c.BeamWidth = cmp.Or(c.BeamWidth, 4)
	c.BranchFactor = cmp.Or(c.BranchFactor, 4)
	c.GradientBatch = cmp.Or(c.GradientBatch, 4)
	if c.Live = c.Live.withDefaults(c.GradientBatch); c.Live != nil {
		c.Rounds = cmp.Or(c.Rounds, liveEndless)
	}
	c.Rounds = cmp.Or(c.Rounds, DefaultRounds)
	c.ValBatch = cmp.Or(c.ValBatch, 16)
	c.FinalSamples = cmp.Or(c.FinalSamples, 1)
	c.Resamples = cmp.Or(c.Resamples, 2000)
	c.ExperimentBytes = cmp.Or(c.ExperimentBytes, 8<<10)
	c.Concurrency = cmp.Or(c.Concurrency, 8)
	c.Level = cmp.Or(c.Level, 0.95)
	c.BatchTimeout = cmp.Or(c.BatchTimeout, time.Hour)
	if c.EditModel == nil {
		c.EditModel, c.EditPrice = c.GradientModel, c.GradientPrice
	}
	if c.CritiquePrompts == nil {
		c.CritiquePrompts = DefaultCritiquePrompts()
	}
	if c.EditPrompts == nil {
		c.EditPrompts = DefaultEditPrompts()
	}
	if c.OnSeed == nil {
		c.OnSeed = func(Candidate) {}
	}
	if c.OnRound == nil {
		c.OnRound = func(Round) {}
	}
	return c
}

// maxEdits bounds the edits of a round, and maxResamples the bootstrap samples of an interval, which are in memory together.
const maxEdits, maxResamples = 1_000_000, 10_000_000

func (c Config) validate() error {
	if c.GradientModel == nil {
		return invalid("GradientModel is nil; a model is required")
	}
	const fewest = 100 // resamples, and bytes
	if err := cmp.Or(c.Validate(), c.Live.validate(), algorithm.AtLeast(
		algorithm.Minimum{Field: "Attempts", Value: c.Attempts, Least: 1},
		algorithm.Minimum{Field: "BeamWidth", Value: c.BeamWidth, Least: 1},
		algorithm.Minimum{Field: "BranchFactor", Value: c.BranchFactor, Least: 1},
		algorithm.Minimum{Field: "Rounds", Value: c.Rounds, Least: 1},
		algorithm.Minimum{Field: "GradientBatch", Value: c.GradientBatch, Least: 1},
		algorithm.Minimum{Field: "ValBatch", Value: c.ValBatch, Least: 1},
		algorithm.Minimum{Field: "FinalSamples", Value: c.FinalSamples, Least: 1},
		algorithm.Minimum{Field: "Resamples", Value: c.Resamples, Least: fewest},
		algorithm.Minimum{Field: "ExperimentBytes", Value: c.ExperimentBytes, Least: fewest},
		algorithm.Minimum{Field: "Concurrency", Value: c.Concurrency, Least: 1},
		algorithm.Minimum{Field: "CritiquePrompts", Value: len(c.CritiquePrompts), Least: 1},
		algorithm.Minimum{Field: "EditPrompts", Value: len(c.EditPrompts), Least: 1},
	),
		algorithm.AtMost(maxEdits, algorithm.Factor{Field: "BeamWidth", Value: c.BeamWidth}, algorithm.Factor{Field: "BranchFactor", Value: c.BranchFactor}),
		algorithm.AtMost(maxResamples, algorithm.Factor{Field: "Resamples", Value: c.Resamples}),
		algorithm.AtMost(algorithm.MaxRollouts, algorithm.Factor{Field: "FinalSamples", Value: c.FinalSamples}),
	); err != nil {
		return invalid("%w", err)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"GradientPrice.Prompt", c.GradientPrice.Prompt},
		{"GradientPrice.Completion", c.GradientPrice.Completion},
		{"EditPrice.Prompt", c.EditPrice.Prompt},
		{"EditPrice.Completion", c.EditPrice.Completion},
		{"Budget.Tokens", float64(c.Budget.Tokens)},
		{"Budget.Dollars", c.Budget.Dollars},
		{"Temperature", c.Temperature.V},
	} {
		if !(f.value >= 0) || math.IsInf(f.value, 0) {
			return invalid("%s is %v, must be a finite number ≥ 0", f.name, f.value)
		}
	}
	free := c.GradientPrice == Price{} && c.EditPrice == Price{}
	switch {
	case !(c.Level > 0 && c.Level < 1):
		return invalid("Level is %v, must be between 0 and 1", c.Level)
	case c.Budget.Dollars > 0 && free:
		return invalid("Budget.Dollars is %v, but both prices are 0, so it would never be spent", c.Budget.Dollars)
	case c.BatchTimeout < 0:
		return invalid("BatchTimeout is %v, must not be negative", c.BatchTimeout)
	}
	return nil
}
