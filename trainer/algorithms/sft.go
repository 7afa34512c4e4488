package algorithms

import (
	"fmt"
	"path/filepath"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/plot"
)

// SFT is package sft with its settings in a run file. The run sets RunConfig and
// the engine.
type SFT struct {
	sft.Config
	// From is where existing rollouts to learn from are stored; nil means that the run
	// samples its own.
	From *keys.Source
}

func sftKeys(dir string) (yamlfile.Value, Algorithm) {
	a := &SFT{}
	key, c := yamlfile.Key, &a.Config
	minReward := yamlfile.Via(func(v *float64) yamlfile.Value { return yamlfile.Number(v, yamlfile.Min(-1e9)) },
		func(v float64) { c.Filter.MinReward = agl.Some(v) })
	fields := []yamlfile.Field{
		key("from", "Existing rollouts to learn from, or the output folder alone of the run that made them; without it the run samples its own.", from(dir, &a.From)),
		key("min_reward", "Learns from rollouts with at least this reward.", minReward),
		key("best", "Learns from this many rollouts of each task, those with the highest rewards; by default from all. Without min_reward, tasks whose rollouts all have the same reward, and rollouts whose agent failed, are rejected.", keys.Count(&c.Filter.Best)),
		key("rounds", "Number of times that rollouts are sampled with the current weights.", keys.Count(&c.Rounds)).Default(1),
		key("tasks", "Tasks of a round; by default all of data.train.", keys.Count(&c.Tasks)),
		key("samples", "Rollouts of each task in a round.", keys.Count(&c.Samples)).Default(4),
		key("steps", "Optimizer steps of a round.", keys.Count(&c.Steps)).Required(),
		key("batch", "Sequences of a step.", keys.Count(&c.Batch)).Default(32),
	}
	fields = append(fields, keys.Rate(&c.Schedule, "0.001 if neither is given.")...)
	fields = append(fields,
		key("pass_reward", "The reward from which a validation task counts as passed.", keys.Positive(&c.PassReward)).Default(1),
		key("form", "The member of tasks that names their form, for pass rates by form.", keys.Form(&c.Form)),
		key("val_n", "Runs only the first n validation tasks, before the first step and after each round; by default all.", keys.Count(&c.Validation.N)),
		key("checkpoint_every", "Steps between checkpoints. Each round has one when its rollouts have finished, and one at its end.", keys.Count(&c.CheckpointEvery)).Default(200),
	)
	return yamlfile.Mapping(fields...).Check(keys.OneRate).Check(func(s *yamlfile.Scope) {
		for _, name := range []string{"rounds", "tasks", "samples"} {
			if s.Given("from") && s.Given(name) {
				s.Failf(name, "given together with from, but then no rollouts are sampled")
			}
		}
		switch {
		case !s.Given("from") && !s.Given("min_reward") && !s.Given("best"):
			s.Failf("", "neither min_reward nor best is given, but training on all of its own rollouts improves no model")
		case s.Clean():
			s.Fail(a.check())
		}
	}), a
}

// from declares where rollouts are stored.
func from(dir string, to **keys.Source) yamlfile.Value {
	return yamlfile.Via(func(from *keys.Source) yamlfile.Value {
		key := yamlfile.Key
		run := yamlfile.Via(yamlfile.Folder, func(folder string) {
			from.Database = "sqlite:" + filepath.Join(folder, keys.DatabaseFile)
		})
		return yamlfile.Short(run, yamlfile.Mapping(
			key("db", "Their database, as `agl store --db` takes it.", keys.Database(dir, &from.Database)),
			key("url", "The URL of the store server that has them.", yamlfile.URL(&from.URL)),
			key("token", "Its token; by default the one in AGL_TOKEN.", yamlfile.Secret(&from.Token)),
		).Check(func(s *yamlfile.Scope) {
			switch {
			case s.Given("db") && s.Given("url"):
				s.Failf("db", "given together with url, must be one of them")
			case !s.Given("db") && !s.Given("url"):
				s.Failf("", "neither db nor url is given, must be one of them")
			}
		}))
	}, func(from keys.Source) { *to = &from })
}

// check lets the algorithm check its settings.
func (a *SFT) check() error {
	c := a.Config
	if a.From != nil {
		c.From = sft.Stored(agl.UnimplementedStore{})
	}
	c.Service = standIn
	_, err := sft.New(c)
	return err
}

// Name implements [Algorithm].
func (*SFT) Name() string { return "sft" }

// Describe implements [Algorithm].
func (a *SFT) Describe() string { return display.Plural(a.Steps*max(a.Rounds, 1), "step") }

// Needs implements [Algorithm].
func (a *SFT) Needs() Needs {
	return Needs{Losses: []tinker.LossName{tinker.CrossEntropy}, Calls: a.From == nil}
}

// New implements [Algorithm].
func (a *SFT) New(p Parts) (Run, error) {
	c := a.Config
	c.RunConfig, c.TrainingConfig = p.RunConfig, p.with(a.TrainingConfig)
	if a.From != nil {
		c.From = StoredRollouts(*a.From, p.LookupEnv, p.TLS, p.RunConfig.Logger)
	}
	v := &trainingView{display: p.Display, warn: p.Warn}
	c.Progress, c.OnStep = v.progress(), v.onSFTStep
	s, err := sft.New(c)
	return &sftRun{s}, err
}

func (v *trainingView) onSFTStep(r sft.Report) {
	v.step = r.Step
	if s := r.Selected; s != nil {
		v.display.Notice(fmt.Sprintf("round %d learns from %s", r.Round, selectedText(s)))
	}
	u := display.Update{Rows: []display.Row{v.stepsRow()}}
	if r.Updates > 0 && (r.Step%lossSteps == 0 || r.Step == r.Steps) {
		u.Line = fmt.Sprintf("step %d/%d  loss %.3f", r.Step, r.Steps, r.Loss)
	}
	v.display.Update(u)
}

// selectedText says which rollouts a round learns from. Those of a round that keeps none have no mean.
func selectedText(s *sft.Selected) string {
	count := func(n int) string { return display.Count(int64(n)) }
	if s.Kept > 0 {
		return fmt.Sprintf("%s of %s rollouts, of %s tasks: mean reward %.3f of all, %.3f of those", count(s.Kept), count(s.Rollouts), count(s.Tasks), s.RewardMean, s.KeptMean)
	}
	masked := 0
	for _, n := range s.Masked {
		masked += n
	}
	return fmt.Sprintf("none of %s rollouts, of which %s are rejected and %s are masked: mean reward %.3f", count(s.Rollouts), count(s.Rejected), count(masked), s.RewardMean)
}

// sftRun is a run of SFT.
type sftRun struct{ *sft.SFT }

// SFTSummary is the summary of a run of SFT.
type SFTSummary struct {
	TrainingSummary
	// Selected is what the last round learned from.
	Selected *sft.Selected `json:"selected,omitzero"`
}

// Result implements [Run].
func (r *sftRun) Result() Result {
	s := r.Summary()
	sentence := fmt.Sprintf("%d optimizer steps, %s rollouts made.", s.Step, display.Count(int64(s.Totals.Rollouts)))
	if c := s.Selected; c != nil {
		sentence += fmt.Sprintf("\n\nThe last round learned from %s.", selectedText(c))
	}
	return Result{
		Summary: SFTSummary{summarize(s.Summary), s.Selected}, Report: reportTraining(sentence, s.Summary), Text: validationText(s.Summary),
		Best: &Best{Weights: s.Weights, Improved: improved(s.Summary)}, Repeats: repeats(s.Summary),
	}
}

// Curves implements [Algorithm].
func (*SFT) Curves(outDir string) ([]Curve, error) {
	steps, err := algorithm.ReadLines[sft.Report](metricsFile(outDir))
	var loss, validation, selected []plot.Point
	for _, s := range steps {
		x := float64(s.Step)
		if s.Validation != nil {
			validation = append(validation, plot.Point{X: x, Y: s.Validation.PassRate})
		}
		if s.Updates > 0 {
			loss = append(loss, plot.Point{X: x, Y: s.Loss})
		}
		if s.Selected != nil {
			selected = append(selected, plot.Point{X: float64(s.Round), Y: s.Selected.RewardMean})
		}
	}
	const label = "step"
	return []Curve{
		{"pass-rate", plot.Chart{Title: "Pass rate of validation tasks", XLabel: label, Unit: true, Series: []plot.Series{{Points: validation, Marks: true}}}},
		{"reward", plot.Chart{Title: "Mean reward of each round's rollouts", XLabel: "round", Series: []plot.Series{{Points: selected, Marks: true}}}},
		{"loss", plot.Chart{Title: "Loss", XLabel: label, Series: []plot.Series{{Points: loss, Smooth: true}}}},
	}, err
}
