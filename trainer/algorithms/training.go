package algorithms

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/markdown"
)

// This file holds what the algorithms that train weights share.

// metricsFile is where algorithms write a line per step, round or task.
func metricsFile(outDir string) string { return filepath.Join(outDir, "metrics.jsonl") }

// with completes the settings of a run file with the parts of a run.
func (p Parts) with(c algorithm.TrainingConfig) algorithm.TrainingConfig {
	c.Service, c.Model, c.InitialWeights, c.Publisher = p.Training.Service, p.Training.Model, p.Training.InitialWeights, p.Training.Publisher
	c.ModelName, c.Origin = p.Training.ModelName, p.Training.Origin
	c.Validation.Sampling = p.Training.Validation.Sampling
	return c
}

// PretrainedBeta2 and [PretrainedSchedule] are the defaults of reinforcement learning for a pretrained model with an adapter: those
// of the Tinker cookbook for a model of 8 billion parameters (tinker_cookbook/recipes/rl_loop.py). Those of
// algorithm.TrainingConfig suit the embedded policy, which has about 107,000 parameters, all of which are trained.
const PretrainedBeta2 = 0.95

// PretrainedSchedule is a constant rate of 4e-5.
func PretrainedSchedule() algorithm.Schedule {
	const rate = 4e-5
	return algorithm.Schedule{Peak: rate, Floor: rate}
}

// standIn is in the place of the engine while settings are checked, which calls no engine.
var standIn tinker.Service = struct{ tinker.Service }{}

// TrainingSummary is the summary of a run that trains weights.
type TrainingSummary struct {
	Steps    int                    `json:"steps"`
	Rollouts int                    `json:"rollouts"`
	Masked   map[algorithm.Mask]int `json:"masked,omitzero"`
	Before   *algorithm.Report      `json:"before,omitzero"`
	After    *algorithm.Report      `json:"after,omitzero"`
}

func summarize(s algorithm.Summary) TrainingSummary {
	return TrainingSummary{Steps: s.Step, Rollouts: s.Totals.Rollouts, Masked: s.Totals.Masked, Before: s.Before, After: s.After}
}

// improved compares the validations before and after a run, if each has tasks that count.
func improved(s algorithm.Summary) agl.Null[bool] {
	if s.Before == nil || s.After == nil || s.Before.N == 0 || s.After.N == 0 {
		return agl.Null[bool]{}
	}
	return agl.Some(s.After.RewardMean > s.Before.RewardMean)
}

// repeats says what a resumption repeats of the steps done; those of a step that was
// interrupted are repeated in any case.
func repeats(s algorithm.Summary) string {
	switch {
	case s.Weights == "":
		return "" // no checkpoint
	case s.Checkpoint == s.Step:
		return fmt.Sprintf("continues after step %d and repeats none of the steps done", s.Step)
	case s.Checkpoint+1 == s.Step:
		return fmt.Sprintf("continues after the checkpoint of step %d and repeats step %d", s.Checkpoint, s.Step)
	default:
		return fmt.Sprintf("continues after the checkpoint of step %d and repeats steps %d to %d", s.Checkpoint, s.Checkpoint+1, s.Step)
	}
}

// reportTraining is the section of a report, after a sentence of the algorithm.
func reportTraining(sentence string, s algorithm.Summary) string {
	var b strings.Builder
	b.WriteString("\n## Result\n\n" + sentence + "\n")
	if s.Before != nil {
		b.WriteString("\n| validation | pass rate | 95 % interval | tasks | mean reward |\n|---|---|---|---|---|\n")
		for _, one := range []struct {
			name   string
			report *algorithm.Report
		}{{"before training", s.Before}, {"after training", s.After}} {
			if r := one.report; r != nil {
				fmt.Fprintf(&b, "| %s | **%.3f** | %.3f to %.3f | %d | %.3f |\n", one.name, r.PassRate, r.CI95[0], r.CI95[1], r.N, r.RewardMean)
			}
		}
	}
	if s.After != nil {
		before := cmp.Or(s.Before, &algorithm.Report{})
		reportParts(&b, "form of task", before.Forms, s.After.Forms, func(r algorithm.Rate) float64 { return r.PassRate })
		reportParts(&b, "dimension of the reward", before.Dimensions, s.After.Dimensions, func(mean float64) float64 { return mean })
	}
	b.WriteString(reportMasked(s.Totals.Masked, s.Totals.Rollouts))
	return b.String()
}

// reportParts writes a table of what was measured by parts before and after training, if there are parts.
func reportParts[V any](b *strings.Builder, part string, before, after map[string]V, number func(V) float64) {
	if len(after) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| %s | before | after |\n|---|---|---|\n", part)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was := "–"
		if v, ok := before[name]; ok {
			was = fmt.Sprintf("%.3f", number(v))
		}
		fmt.Fprintf(b, "| %s | %s | %.3f |\n", markdown.Cell(name), was, number(after[name]))
	}
}

// reportMasked is a sentence about masked rollouts, if there are any.
func reportMasked(masked map[algorithm.Mask]int, rollouts int) string {
	if len(masked) == 0 {
		return ""
	}
	return fmt.Sprintf("\nOf %s rollouts, these count in no reward: %s.\n", display.Count(int64(rollouts)), algorithm.DescribeCounts(masked))
}

// validationText describes the validations on a terminal.
func validationText(s algorithm.Summary) string {
	if s.Before == nil || s.After == nil {
		return ""
	}
	text := fmt.Sprintf("\nvalidation tasks, before: %s\nvalidation tasks, after:  %s\n", display.Rate(s.Before.Rate), display.Rate(s.After.Rate))
	if len(s.After.Forms) > 0 {
		text += fmt.Sprintf("after, by form of task:   %s\n", display.Forms(s.After.Forms))
	}
	return text
}

// trainingView shows the steps, rollouts and validations of a run on a display.
type trainingView struct {
	display     display.Display
	warn        func(text string)
	step, steps int
}

func (v *trainingView) stepsRow() display.Row {
	if v.steps == 0 { // the run has no end
		return display.Row{Label: "steps", Text: fmt.Sprint(v.step)}
	}
	return display.Row{Label: "steps", Done: v.step, Total: v.steps, Timed: true}
}

func (v *trainingView) progress() algorithm.Progress {
	return algorithm.Progress{OnStart: v.onStart, OnRollouts: v.onRollouts, OnValidation: v.onValidation, OnWarning: v.onWarning}
}

func (v *trainingView) onStart(s algorithm.Start) {
	v.step, v.steps = s.Step, s.Steps
	v.display.Update(display.Update{Rows: []display.Row{v.stepsRow()}})
	if s.Resumed {
		of := ""
		if s.Steps > 0 {
			of = fmt.Sprintf(" of %d", s.Steps)
		}
		v.display.Notice(fmt.Sprintf("resumes after step %d%s", s.Step, of))
	}
	if s.Before != nil {
		v.display.Update(display.Update{Rows: []display.Row{beforeRow(*s.Before)}})
	}
}

func (v *trainingView) onRollouts(phase algorithm.Phase, _, done, total int) {
	rows := []display.Row{{Label: "rollouts", Done: done, Total: total, Text: "of " + string(phase)}}
	if phase == algorithm.PhaseTrain {
		rows = append(rows, v.stepsRow())
	}
	v.display.Update(display.Update{Rows: rows})
}

func (v *trainingView) onValidation(step int, r algorithm.Report) {
	row := beforeRow(r)
	if step > 0 {
		row = display.Row{Label: "validation", Text: fmt.Sprintf("pass rate %.2f after step %d", r.PassRate, step)}
	}
	v.display.Update(display.Update{
		Line: fmt.Sprintf("validation after step %d: pass rate %s", step, withForms(display.Rate(r.Rate), r.Forms)), Rows: []display.Row{row},
	})
}

func (v *trainingView) onWarning(w algorithm.Warning) {
	v.display.Notice("warning: " + w.Message)
	v.warn(w.Message)
}

func beforeRow(r algorithm.Report) display.Row {
	return display.Row{Label: "before", Text: withForms(fmt.Sprintf("pass rate %.2f", r.PassRate), r.Forms)}
}

func withForms(text string, forms map[string]algorithm.Rate) string {
	if len(forms) == 0 {
		return text
	}
	return text + ", " + display.Forms(forms)
}

// lossSteps is the number of steps of supervised training per line: each takes
// milliseconds on a small model.
const lossSteps = 100

// ShowWarmStart returns an sft.TrainConfig.OnStep that shows a warm start.
func ShowWarmStart(d display.Display) func(sft.StepReport) {
	return func(r sft.StepReport) {
		u := display.Update{Rows: []display.Row{{Label: "warm start", Done: r.Step, Total: r.Steps, Text: fmt.Sprintf("loss %.3f", r.Loss), Timed: true}}}
		if r.Step%lossSteps == 0 || r.Step == r.Steps {
			u.Line = fmt.Sprintf("warm start %4d/%d  loss %.3f", r.Step, r.Steps, r.Loss)
		}
		d.Update(u)
	}
}
