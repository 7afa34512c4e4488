package job

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/trainer/plot"
)

// curve is a chart of the report.
type curve struct {
	name  string // of its file
	chart plot.Chart
	svg   []byte // nil when there is nothing to draw
}

// curves draws what a run has of them. They come from the metrics in the folder, so
// that those of a run which was killed are whole.
func (r *run) curves(result *Result) ([]curve, error) {
	var list []curve
	var err error
	switch r.folder.record.Algorithm {
	case "grpo":
		var steps []grpo.StepReport
		steps, err = algorithm.ReadLines[grpo.StepReport](r.folder.file(metricsFile))
		list = stepCurves(steps)
	case "sft":
		var steps []sft.Report
		steps, err = algorithm.ReadLines[sft.Report](r.folder.file(metricsFile))
		list = tuningCurves(steps)
	case "apo":
		list = roundCurves(result.APO)
	default:
		var tasks []baseline.Finished
		tasks, err = algorithm.ReadLines[baseline.Finished](r.folder.file(metricsFile))
		list = taskCurves(tasks)
	}
	drawn := list[:0]
	for _, c := range list {
		if c.svg = c.chart.SVG(); c.svg != nil {
			drawn = append(drawn, c)
		}
	}
	return drawn, err
}

func stepCurves(steps []grpo.StepReport) []curve {
	var reward, pass, validation, loss, speed []plot.Point
	for _, s := range steps {
		x := float64(s.Step)
		if s.Validation != nil {
			validation = append(validation, plot.Point{X: x, Y: s.Validation.PassRate})
		}
		if s.Step == 0 {
			continue
		}
		reward = append(reward, plot.Point{X: x, Y: s.RewardMean})
		pass = append(pass, plot.Point{X: x, Y: s.PassRate})
		if s.Updates > 0 {
			loss = append(loss, plot.Point{X: x, Y: s.Loss})
		}
		speed = append(speed, plot.Point{X: x, Y: s.TokensPerSecond})
	}
	const label = "step"
	return []curve{
		{name: "pass-rate", chart: plot.Chart{Title: "Pass rate", XLabel: label, Unit: true, Series: []plot.Series{
			{Name: "training", Points: pass, Smooth: true}, {Name: "validation", Points: validation, Marks: true},
		}}},
		{name: "reward", chart: plot.Chart{Title: "Mean reward of each step's rollouts", XLabel: label, Series: []plot.Series{{Points: reward, Smooth: true}}}},
		{name: "loss", chart: plot.Chart{Title: "Loss", XLabel: label, Series: []plot.Series{{Points: loss, Smooth: true}}}},
		{name: "speed", chart: plot.Chart{Title: "Sampled tokens per second", XLabel: label, Series: []plot.Series{{Points: speed, Smooth: true}}}},
	}
}

func tuningCurves(steps []sft.Report) []curve {
	var loss, validation, chosen []plot.Point
	for _, s := range steps {
		x := float64(s.Step)
		if s.Validation != nil {
			validation = append(validation, plot.Point{X: x, Y: s.Validation.PassRate})
		}
		if s.Updates > 0 {
			loss = append(loss, plot.Point{X: x, Y: s.Loss})
		}
		if s.Selected != nil {
			chosen = append(chosen, plot.Point{X: float64(s.Round), Y: s.Selected.RewardMean})
		}
	}
	const label = "step"
	return []curve{
		{name: "pass-rate", chart: plot.Chart{Title: "Pass rate of validation tasks", XLabel: label, Unit: true, Series: []plot.Series{{Points: validation, Marks: true}}}},
		{name: "reward", chart: plot.Chart{Title: "Mean reward of each round's rollouts", XLabel: "round", Series: []plot.Series{{Points: chosen, Marks: true}}}},
		{name: "loss", chart: plot.Chart{Title: "Loss", XLabel: label, Series: []plot.Series{{Points: loss, Smooth: true}}}},
	}
}

func roundCurves(r *apo.Report) []curve {
	if r == nil {
		return nil
	}
	var tried, best, tokens []plot.Point
	for _, c := range r.Candidates {
		if c.Score.Valid {
			tried = append(tried, plot.Point{X: float64(c.Round), Y: c.Score.V})
		}
	}
	byID := make(map[string]apo.Candidate, len(r.Candidates))
	for _, c := range r.Candidates {
		byID[c.ResourcesID] = c
	}
	if r.Seed.Validation.Valid {
		best = append(best, plot.Point{X: 0, Y: r.Seed.Validation.V})
	}
	for _, one := range r.Rounds {
		if c := byID[one.Best]; c.Validation.Valid {
			best = append(best, plot.Point{X: float64(one.Round), Y: c.Validation.V})
		}
		tokens = append(tokens, plot.Point{X: float64(one.Round), Y: float64(one.Spent.PromptTokens + one.Spent.CompletionTokens)})
	}
	const label = "round"
	return []curve{
		{name: "validation", chart: plot.Chart{Title: "Mean reward of the best prompts, on the validation tasks", XLabel: label, Series: []plot.Series{{Name: "best", Points: best, Marks: true}}}},
		{name: "candidates", chart: plot.Chart{Title: "Mean reward of each candidate, where it was last tried", XLabel: label, Series: []plot.Series{{Points: tried, Scatter: true}}}},
		{name: "tokens", chart: plot.Chart{Title: "Tokens of the calls that make prompts", XLabel: label, Series: []plot.Series{{Points: tokens, Marks: true}}}},
	}
}

func taskCurves(tasks []baseline.Finished) []curve {
	means := map[agl.Mode][]plot.Point{}
	sums := map[agl.Mode]float64{}
	for _, t := range tasks {
		if !t.Reward.Valid {
			continue
		}
		sums[t.Mode] += t.Reward.V
		n := float64(len(means[t.Mode]) + 1)
		means[t.Mode] = append(means[t.Mode], plot.Point{X: n, Y: sums[t.Mode] / n})
	}
	return []curve{{name: "reward", chart: plot.Chart{Title: "Mean reward so far", XLabel: "tasks with a reward", Series: []plot.Series{
		{Name: "train", Points: means[agl.ModeTrain]}, {Name: "validation", Points: means[agl.ModeVal]},
	}}}}
}
