package apo

import (
	"log/slog"
	"math"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// Config configures [New]. Fields not said to be required may be zero.
type Config struct {
	// GradientModel criticises prompts. Required.
	GradientModel Model
	// EditModel rewrites them; nil means GradientModel.
	EditModel Model
	// GradientPrice is what GradientModel costs.
	GradientPrice Price
	// EditPrice is what EditModel costs; not used when that is nil.
	EditPrice Price
	// Budget ends the search when it is spent.
	Budget Budget
	// Temperature at which the models sample, of both kinds; null means 1.
	Temperature agl.Null[float64]
	// Attempts is how often a model is asked for one critique or one usable edit
	// before the edit is given up; zero means 3.
	Attempts int

	// BeamWidth is how many candidates go from round to round; zero means 4.
	BeamWidth int
	// BranchFactor is the number of edits of each parent; zero means 4.
	BranchFactor int
	// Rounds is the number of rounds; zero means 3. A resumed run may have more.
	Rounds int
	// GradientBatch is the number of training tasks that a critique sees; zero
	// means 4. At most the training dataset.
	GradientBatch int
	// ValBatch is the number of validation tasks, drawn anew each round, on which
	// the candidates of a round are compared; zero means 16. At most the
	// validation dataset.
	ValBatch int
	// SkipInitialValidation does not run the validation dataset with the seed
	// before the first round. The first leader then takes the seed's place
	// without a comparison, until the last one.
	SkipInitialValidation bool
	// FinalSamples is how many fresh rollouts of each validation task the final
	// comparison makes with the seed, and as many with the best; zero means 1.
	// More of them make its interval narrower.
	FinalSamples int
	// Level is the coverage of intervals, in (0, 1); zero means 0.95.
	Level float64
	// Resamples is the number of bootstrap samples of an interval; zero means 2000.
	Resamples int

	// CritiquePrompts are the kinds of requests for a critique, as Go templates
	// (text/template) that are given a [CritiqueData]; nil means
	// [DefaultCritiquePrompts].
	CritiquePrompts []string
	// EditPrompts are the kinds of requests for an edit, which are given an
	// [EditData]; nil means [DefaultEditPrompts].
	EditPrompts []string
	// ExperimentBytes bounds the messages, and the spans, of one rollout in a
	// request for a critique: the middle of longer ones is left out. Zero means
	// 8 KiB.
	ExperimentBytes int

	// Concurrency is how many edits are made, and how many candidates are tried,
	// at the same time; zero means 8.
	Concurrency int
	// BatchTimeout ends the wait for a batch of rollouts; those that have not
	// finished are cancelled and masked as timeouts. Zero means 1 h.
	BatchTimeout time.Duration
	// Rollout bounds each attempt. Null TimeoutSeconds means 1200 s and null
	// UnresponsiveSeconds 300 s.
	Rollout agl.RolloutConfig
	// Flusher is called before spans are read; nil means that nothing records late.
	Flusher algorithm.Flusher
	// Seed decides every draw of the search and the seeds in the rollouts' metadata.
	Seed uint64

	// OutDir gets report.json, rewritten after every round, and journal.jsonl,
	// from which a later run of the same Config goes on; empty means neither. A
	// directory is one search's alone, and one process's at a time.
	OutDir string
	// Progress is called after every round, never concurrently; nil does nothing.
	Progress func(Round)
	// Logger gets what people should know; nil discards it.
	Logger *slog.Logger
}

// Price is what a model costs, in dollars per million tokens.
type Price struct {
	Prompt     float64
	Completion float64
}

// Budget bounds what the calls of GradientModel and EditModel may cost, over all
// runs that go on from one another. It is looked at before each call, so that the
// calls that are under way when it is spent, at most Config.Concurrency, go beyond.
// The agents' own calls are not in it.
type Budget struct {
	// Tokens of prompts and replies; zero means no bound.
	Tokens int64
	// Dollars, by GradientPrice and EditPrice; zero means no bound.
	Dollars float64
}

// DefaultRounds is the number of rounds of a Config that names none.
const DefaultRounds = 3

const (
	defaultAttempts        = 3
	defaultBeamWidth       = 4
	defaultBranchFactor    = 4
	defaultGradientBatch   = 4
	defaultValBatch        = 16
	defaultResamples       = 2000
	defaultLevel           = 0.95
	defaultExperimentBytes = 8 << 10
	defaultConcurrency     = 8
	defaultBatchTimeout    = time.Hour
	defaultTimeout         = 1200 // seconds
	defaultUnresponsive    = 300  // seconds
)

func (c Config) withDefaults() Config {
	for _, f := range []struct {
		value *int
		def   int
	}{
		{&c.Attempts, defaultAttempts},
		{&c.BeamWidth, defaultBeamWidth},
		{&c.BranchFactor, defaultBranchFactor},
		{&c.Rounds, DefaultRounds},
		{&c.GradientBatch, defaultGradientBatch},
		{&c.ValBatch, defaultValBatch},
		{&c.FinalSamples, 1},
		{&c.Resamples, defaultResamples},
		{&c.ExperimentBytes, defaultExperimentBytes},
		{&c.Concurrency, defaultConcurrency},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	if c.Level == 0 {
		c.Level = defaultLevel
	}
	if c.EditModel == nil {
		c.EditModel, c.EditPrice = c.GradientModel, c.GradientPrice
	}
	if c.CritiquePrompts == nil {
		c.CritiquePrompts = DefaultCritiquePrompts()
	}
	if c.EditPrompts == nil {
		c.EditPrompts = DefaultEditPrompts()
	}
	if c.BatchTimeout == 0 {
		c.BatchTimeout = defaultBatchTimeout
	}
	c.Rollout = c.Rollout.WithDefaults()
	if !c.Rollout.TimeoutSeconds.Valid {
		c.Rollout.TimeoutSeconds = agl.Some[float64](defaultTimeout)
	}
	if !c.Rollout.UnresponsiveSeconds.Valid {
		c.Rollout.UnresponsiveSeconds = agl.Some[float64](defaultUnresponsive)
	}
	if c.Progress == nil {
		c.Progress = func(Round) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if c.GradientModel == nil {
		return invalid("GradientModel is nil; a model is required")
	}
	for _, f := range []struct {
		name       string
		value, min int
	}{
		{"Attempts", c.Attempts, 1},
		{"BeamWidth", c.BeamWidth, 1},
		{"BranchFactor", c.BranchFactor, 1},
		{"Rounds", c.Rounds, 1},
		{"GradientBatch", c.GradientBatch, 1},
		{"ValBatch", c.ValBatch, 1},
		{"FinalSamples", c.FinalSamples, 1},
		{"Resamples", c.Resamples, 100},
		{"ExperimentBytes", c.ExperimentBytes, 100},
		{"Concurrency", c.Concurrency, 1},
		{"CritiquePrompts", len(c.CritiquePrompts), 1},
		{"EditPrompts", len(c.EditPrompts), 1},
	} {
		if f.value < f.min {
			return invalid("%s is %d, must be at least %d", f.name, f.value, f.min)
		}
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
			return invalid("%s is %v, must be a number that is not negative", f.name, f.value)
		}
	}
	free := c.GradientPrice == Price{} && c.EditPrice == Price{}
	switch {
	case !(c.Level > 0 && c.Level < 1):
		return invalid("Level is %v, must be between 0 and 1", c.Level)
	case c.Budget.Dollars > 0 && free:
		return invalid("Budget.Dollars is %v and both prices are 0: it would never be spent", c.Budget.Dollars)
	case c.BatchTimeout < 0:
		return invalid("BatchTimeout is %v, must not be negative", c.BatchTimeout)
	}
	if err := c.Rollout.Validate(); err != nil {
		return invalid("Rollout: %w", err)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, "apo: "+format, args...)
}
