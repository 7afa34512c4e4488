package algorithms

import (
	"fmt"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/plot"
)

// Baseline is package baseline with its settings in a run file. The run sets
// RunConfig.
type Baseline struct{ baseline.Config }

func baselineKeys(string) (yamlfile.Value, Algorithm) {
	a := &Baseline{}
	key := yamlfile.Key
	return yamlfile.Mapping(
		key("epochs", "Number of passes over the tasks.", keys.Count(&a.Epochs)).Default(1),
		key("max_queue_length", "Rollouts that may wait before another is enqueued.", keys.Count(&a.MaxQueueLength)).Default(4),
		key("span_verbosity", "How much of a span is logged.",
			yamlfile.Words(&a.SpanVerbosity, baseline.SpanKeys, baseline.SpanKeyValues, baseline.SpanNone)).Default(string(baseline.SpanKeys)),
	), a
}

// Name implements [Algorithm].
func (*Baseline) Name() string { return "baseline" }

// Describe implements [Algorithm].
func (*Baseline) Describe() string { return "" }

// Needs implements [Algorithm].
func (*Baseline) Needs() Needs { return Needs{} }

// taskLines is the number of lines that a run prints at most.
const taskLines = 20

// New implements [Algorithm].
func (a *Baseline) New(p Parts) (Run, error) {
	c := a.Config
	c.RunConfig = p.RunConfig
	if p.Proxied {
		c.Adapter = adapter.ProxyTriplets{}
	}
	printed := 0
	c.OnTask = func(f baseline.Finished) {
		mean := meanReward("none", "%.3f", f.Rewarded, f.RewardMean)
		u := display.Update{Rows: []display.Row{
			{Label: "tasks", Done: f.Done, Total: f.Total, Timed: true}, {Label: "reward", Text: fmt.Sprintf("%s  %d failed", mean, f.Failed)},
		}}
		if part := f.Done * taskLines / max(f.Total, 1); part > printed {
			printed = part
			u.Line = fmt.Sprintf("task %4d/%d  reward %s  failed %d", f.Done, f.Total, mean, f.Failed)
		}
		p.Display.Update(u)
	}
	b, err := baseline.New(c)
	return &baselineRun{b}, err
}

func meanReward(none, format string, rewarded int, mean float64) string {
	if rewarded == 0 {
		return none
	}
	return fmt.Sprintf(format, mean)
}

// baselineRun is a run of the baseline.
type baselineRun struct{ *baseline.Baseline }

// BaselineSummary is the summary of a run of the baseline.
type BaselineSummary struct {
	Train baseline.Counts `json:"train"`
	Val   baseline.Counts `json:"val"`
}

// Result implements [Run].
func (r *baselineRun) Result() Result {
	seen := r.Report()
	var report, text strings.Builder
	report.WriteString("\n## Result\n\n| tasks | rollouts | attempts | mean reward | rewarded | outcomes |\n|---|---|---|---|---|---|\n")
	for _, part := range []struct {
		name string
		baseline.Counts
	}{{"train", seen.Train}, {"validation", seen.Val}} {
		if part.Rollouts == 0 {
			continue
		}
		fmt.Fprintf(&report, "| %s | %d | %d | %s | %d | %s |\n",
			part.name, part.Rollouts, part.Attempts, meanReward("none", "**%.3f**", part.Rewarded, part.RewardMean), part.Rewarded, algorithm.DescribeCounts(part.Outcomes))
		mean := "no reward"
		if part.Rewarded > 0 {
			mean = fmt.Sprintf("mean reward %.3f of %d", part.RewardMean, part.Rewarded)
		}
		tasks := "tasks"
		if part.Rollouts == 1 {
			tasks = "task"
		}
		fmt.Fprintf(&text, "%s: %d %s, %s, %s\n", part.name, part.Rollouts, tasks, mean, algorithm.DescribeCounts(part.Outcomes))
	}
	return Result{Summary: BaselineSummary(seen), Report: report.String(), Text: text.String(), Repeats: "skips the tasks that are done"}
}

// Curves implements [Algorithm].
func (*Baseline) Curves(outDir string) ([]Curve, error) {
	tasks, err := algorithm.ReadLines[baseline.Finished](metricsFile(outDir))
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
	return []Curve{{"reward", plot.Chart{Title: "Mean reward so far", XLabel: "tasks with a reward", Series: []plot.Series{
		{Name: "train", Points: means[agl.ModeTrain]}, {Name: "validation", Points: means[agl.ModeVal]},
	}}}}, err
}
