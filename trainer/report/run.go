package report

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/trainer/plot"
)

// The most of each thing that a report shows.
const (
	maxSteps    = 100_000
	maxRollouts = 5000 // of the step whose groups are shown
	maxGroups   = 40
	maxTold     = 3 // groups with their conversations
	maxSiblings = 4 // of each of them
)

// Params are the arguments of [Run].
type Params struct {
	Store agl.Store
	Runs  agl.Runs // of the store
	Run   agl.Run
	// Input returns what the page shows of an input, without the keys in it; nil shows all.
	Input func(jsontext.Value) jsontext.Value
}

// Run writes the page of a run: its curves, the groups of its last step with training rollouts, and what some of them said, those
// whose rewards differ most first.
func Run(ctx context.Context, p Params) ([]byte, error) {
	run := p.Run
	metrics, err := p.Runs.QueryRunMetrics(ctx, agl.QueryRunMetricsParams{RunID: run.RunID, Limit: maxSteps})
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	writeFacts(&b, &run)
	writeCurves(&b, metrics.Items)
	step, groups, err := lastGroups(ctx, &p, metrics.Items)
	if err != nil {
		return nil, err
	}
	if len(groups) > 0 {
		if err := writeGroups(ctx, &b, p.Store, step, groups); err != nil {
			return nil, err
		}
	}
	return Page(cmp.Or(run.Name, run.RunID)+" "+run.Algorithm, b.String()), nil
}

func writeFacts(b *strings.Builder, run *agl.Run) {
	fmt.Fprintf(b, "<h1>%s</h1>\n<table>\n", html.EscapeString(cmp.Or(run.Name, run.RunID)))
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "<tr><th>%s</th><td>%s</td></tr>\n", name, html.EscapeString(value))
		}
	}
	at := func(t agl.Timestamp) string {
		return time.UnixMicro(int64(t * 1e6)).UTC().Format("2006-01-02 15:04:05 UTC")
	}
	row("Run", run.RunID)
	row("Algorithm", run.Algorithm)
	row("Status", string(run.Status))
	row("Error", run.Error)
	row("Started", at(run.StartTime))
	if run.EndTime.Valid {
		row("Took", time.Duration(float64(run.EndTime.V-run.StartTime)*float64(time.Second)).Round(time.Second).String())
	}
	if run.Step.Valid {
		row("Steps", fmt.Sprint(run.Step.V))
	}
	b.WriteString("</table>\n")
}

// panels are the curves, as the dashboard draws them.
func panels() []struct {
	title string
	names []string
} {
	return []struct {
		title string
		names []string
	}{
		{"Training reward", []string{"reward_mean", "pass_rate"}},
		{"Validation", []string{"validation/reward_mean", "validation/pass_rate", "validation/ci95/0", "validation/ci95/1"}},
		{"Loss", []string{"loss"}},
		{"KL", []string{"kl", "drift/kl"}},
		{"Entropy", []string{"entropy", "drift/entropy"}},
		{"Mismatch of log-probabilities", []string{"logprob_gap/mean", "logprob_gap/max"}},
		{"Seconds by phase", []string{"seconds/rollouts", "seconds/train", "seconds/publish", "seconds/validate"}},
		{"Tokens", []string{"prompt_tokens", "response_tokens"}},
	}
}

func writeCurves(b *strings.Builder, steps []agl.RunMetrics) {
	fewPoints := 30
	for _, panel := range panels() {
		chart := plot.Chart{Title: panel.title, XLabel: "step"}
		for _, name := range panel.names {
			series := plot.Series{Name: name}
			for i := range steps {
				if v, there := steps[i].Values[name]; there {
					series.Points = append(series.Points, plot.Point{X: float64(steps[i].Step), Y: v})
				}
			}
			series.Marks = len(series.Points) <= fewPoints
			if len(series.Points) > 0 {
				chart.Series = append(chart.Series, series)
			}
		}
		if len(chart.Series) > 0 {
			fmt.Fprintf(b, "<figure>%s</figure>\n", chart.SVG())
		}
	}
	if len(steps) == 0 {
		b.WriteString("<p>The run has no metrics.</p>\n")
	}
}

// lastGroups returns the groups of the last step that has metrics and training rollouts, or of a run without metrics those of the
// step of its newest training rollout.
func lastGroups(ctx context.Context, p *Params, metrics []agl.RunMetrics) (int, []*group, error) {
	const looked = 20 // steps back: the last ones may be validations alone
	var steps []int
	for _, m := range slices.Backward(metrics[max(0, len(metrics)-looked):]) {
		steps = append(steps, m.Step)
	}
	query := agl.QueryRolloutsParams{ModeIn: []agl.Mode{agl.ModeTrain}, Labels: []agl.Label{{Name: "run", Value: p.Run.RunID}}}
	if len(steps) == 0 {
		query.Paging = agl.Paging{Limit: 1, SortBy: "start_time", Order: agl.Descending}
		newest, err := p.Store.QueryRollouts(ctx, query)
		if err != nil {
			return 0, nil, err
		}
		for i := range newest.Items {
			if step, there := agl.Attributes(newest.Items[i].Metadata).GetInt("step"); there {
				steps = append(steps, int(step))
			}
		}
	}
	for _, step := range steps {
		query.Labels, query.Paging = append(query.Labels[:1:1], agl.Label{Name: "step", Value: fmt.Sprint(step)}), agl.Paging{Limit: maxRollouts}
		page, err := p.Store.QueryRollouts(ctx, query)
		if err != nil {
			return 0, nil, err
		}
		for i := range page.Items {
			if p.Input != nil {
				page.Items[i].Input = p.Input(page.Items[i].Input)
			}
		}
		if len(page.Items) > 0 {
			return step, grouped(page.Items), nil
		}
	}
	return 0, nil, nil
}

func writeGroups(ctx context.Context, b *strings.Builder, store agl.Store, step int, groups []*group) error {
	fmt.Fprintf(b, "<h2>Groups of step %d</h2>\n<table>\n<tr><th>Group</th><th>Task</th><th>Rollouts</th><th>Mean reward</th><th>Lowest</th><th>Highest</th><th>Teaches</th></tr>\n", step)
	for _, g := range groups[:min(maxGroups, len(groups))] {
		mean, low, high := "–", "–", "–"
		if len(g.rewards) > 0 {
			mean, low, high = number(g.mean()), number(slices.Min(g.rewards)), number(slices.Max(g.rewards))
		}
		teaches := "yes"
		if why := g.uselessReason(); why != "" {
			teaches = "nothing: " + why
		}
		fmt.Fprintf(b, "<tr><td>%s</td><td>%s</td><td>%d</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
			g.name, clippedTo(rawjson.Readable(g.members[0].Input), 200), len(g.members), mean, low, high, clippedTo(teaches, 500))
	}
	b.WriteString("</table>\n")
	if n := len(groups) - maxGroups; n > 0 {
		fmt.Fprintf(b, "<p>%d more groups are left out.</p>\n", n)
	}
	most := slices.SortedStableFunc(slices.Values(groups), func(a, b *group) int { return cmp.Compare(b.spread(), a.spread()) })
	b.WriteString("<h2>Conversations</h2>\n<p>The groups of the step whose rewards differ most, the best rollouts of each beside the worst.</p>\n")
	for _, g := range most[:min(maxTold, len(most))] {
		if err := writeSiblings(ctx, b, store, g); err != nil {
			return err
		}
	}
	return nil
}

func writeSiblings(ctx context.Context, b *strings.Builder, store agl.Store, g *group) error {
	value := func(m member) float64 {
		if m.mask != "" {
			return math.Inf(-1)
		}
		return m.reward
	}
	members := slices.SortedStableFunc(slices.Values(g.members), func(a, b member) int { return cmp.Compare(value(b), value(a)) })
	if len(members) > maxSiblings {
		members = slices.Concat(members[:maxSiblings/2], members[len(members)-maxSiblings/2:])
	}
	fmt.Fprintf(b, "<h3>Group %s</h3>\n<div class=\"pair\">\n", g.name)
	for i := range members {
		one, err := ReadRollout(ctx, store, &members[i].AttemptedRollout)
		if err != nil {
			return err
		}
		if one != nil {
			b.WriteString("<div>")
			if m := &members[i]; m.mask != "" {
				fmt.Fprintf(b, "<p>It does not count: %s.</p>\n", clippedTo(m.mask, 500))
			} else if m.dropped == "truncated" {
				fmt.Fprintf(b, "<p>It is not trained on: %s.</p>\n", inWords(m.dropped))
			}
			WriteRollout(b, "", one)
			b.WriteString("</div>\n")
		}
	}
	b.WriteString("</div>\n")
	return nil
}

func number(v float64) string { return fmt.Sprintf("%.4g", v) }
