package job

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/trainer/display"
)

// writeReport writes report.md and its curves, whatever the run came to.
func (r *run) writeReport(result *Result) error {
	curves, err := r.curves(result)
	if err != nil {
		// Half a report is better than none.
		r.notes.add("The curves are not complete: " + err.Error())
	}
	var b bytes.Buffer
	r.head(&b, result)
	switch {
	case result.GRPO != nil:
		reportGRPO(&b, result)
	case result.SFT != nil:
		reportSFT(&b, result.SFT)
	case result.APO != nil:
		reportAPO(&b, result.APO)
	case result.Baseline != nil:
		reportBaseline(&b, result.Baseline)
	}
	if len(curves) > 0 {
		b.WriteString("\n## Curves\n")
	}
	failed := err
	for _, c := range curves {
		if c.svg == nil {
			continue
		}
		failed = errors.Join(failed, r.writeCurve(c))
		fmt.Fprintf(&b, "\n![%s](%s/%s.svg)\n", c.chart.Title, curvesDir, c.name)
	}
	r.tail(&b)
	if err := algorithm.WriteFileAtomic(result.Report, b.Bytes()); err != nil {
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		return fmt.Errorf("write the report: %w", failed)
	}
	return nil
}

func (r *run) writeCurve(c curve) error {
	const dirMode = 0o755
	dir := r.folder.file(curvesDir)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	return algorithm.WriteFileAtomic(filepath.Join(dir, c.name+".svg"), c.svg)
}

// head says what was run and how it ended.
func (r *run) head(b *bytes.Buffer, result *Result) {
	rec := &result.Record
	fmt.Fprintf(b, "# %s\n\n", filepath.Base(result.Output))
	switch rec.State {
	case StateFinished:
		b.WriteString("The run is finished.\n")
	case StateInterrupted:
		fmt.Fprintf(b, "**The run was interrupted** (%s), so this is not its end. Go on with `agl train --resume %s`.\n", cell(rec.Error), result.Output)
	case StateFailed:
		fmt.Fprintf(b, "**The run failed**, so this is not its end:\n\n    %s\n\nGo on with `agl train --resume %s` when the cause is gone.\n",
			strings.ReplaceAll(strings.TrimSpace(rec.Error), "\n", "\n    "), result.Output)
	case StateRunning:
	}
	b.WriteString("\n| | |\n|---|---|\n")
	row := func(name, format string, args ...any) {
		fmt.Fprintf(b, "| %s | %s |\n", name, fmt.Sprintf(format, args...))
	}
	row("algorithm", "%s", rec.Algorithm)
	if command := r.cfg.agentName(); command != "" {
		row("agent", "`%s`, %d at once", cell(command), r.cfg.File.Agent.Concurrency)
	}
	if e := r.cfg.File.Engine; e != nil && e.Tinker != nil {
		row("engine", "%s, %s", cell(e.Tinker.Client.URL), cell(cmp.Or(e.Tinker.Model, "its first model")))
	}
	row("run file", "`%s`, kept as [%s](%s), seed %d", cell(rec.Source), configFile, configFile, r.cfg.File.Seed)
	row("began", "%s", rec.Began.Format(time.RFC3339))
	took := (time.Duration(rec.Seconds * float64(time.Second))).Round(time.Second / 10)
	if rec.Resumed > 0 {
		row("wall time", "%s, resumed %s", took, times(rec.Resumed))
	} else {
		row("wall time", "%s", took)
	}
	if rec.Usage.Calls > 0 {
		row("agents' model calls", "%s, %s prompt and %s completion tokens",
			display.Count(rec.Usage.Calls), display.Count(rec.Usage.PromptTokens), display.Count(rec.Usage.CompletionTokens))
	}
	if result.APO != nil {
		s := result.APO.Spent
		text := fmt.Sprintf("%d, %s prompt and %s completion tokens", s.Calls, display.Count(s.PromptTokens), display.Count(s.CompletionTokens))
		if s.Dollars > 0 {
			text += fmt.Sprintf(", $%.4f", s.Dollars)
		}
		row("calls that make prompts", "%s", text)
	}
	row("agl", "%s", rec.Version)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// cell makes text fit for one cell of a table.
func cell(s string) string {
	return strings.NewReplacer("\n", " ", "|", "\\|", "`", "'").Replace(s)
}

func reportGRPO(b *bytes.Buffer, result *Result) {
	s := result.GRPO
	fmt.Fprintf(b, "\n## Result\n\n%d steps, %s rollouts, %s tokens sampled in training.\n", s.Step, display.Count(int64(s.Totals.Rollouts)), display.Count(int64(s.Totals.Tokens)))
	reportValidations(b, s.Before, s.After)
	reportMasked(b, s.Totals.Masked, s.Totals.Rollouts)
}

// reportSFT is what fine-tuning on rollouts came to.
func reportSFT(b *bytes.Buffer, s *sft.Summary) {
	fmt.Fprintf(b, "\n## Result\n\n%d optimizer steps, %s rollouts made.\n", s.Step, display.Count(int64(s.Totals.Rollouts)))
	if c := s.Selected; c != nil {
		fmt.Fprintf(b, "\nThe last round learned from %s of %s rollouts, of %s tasks: mean reward %.3f of all, %.3f of those.\n",
			display.Count(int64(c.Kept)), display.Count(int64(c.Rollouts)), display.Count(int64(c.Tasks)), c.RewardMean, c.KeptMean)
	}
	reportValidations(b, s.Before, s.After)
	reportMasked(b, s.Totals.Masked, s.Totals.Rollouts)
}

func reportValidations(b *bytes.Buffer, before, after *algorithm.Report) {
	if before != nil {
		b.WriteString("\n| validation | pass rate | 95 % interval | tasks | mean reward |\n|---|---|---|---|---|\n")
		for _, one := range []struct {
			name   string
			report *algorithm.Report
		}{{"before training", before}, {"after training", after}} {
			if one.report == nil {
				continue
			}
			fmt.Fprintf(b, "| %s | **%.3f** | %.3f to %.3f | %d | %.3f |\n", one.name, one.report.PassRate, one.report.CI95[0], one.report.CI95[1], one.report.N, one.report.RewardMean)
		}
	}
	if after != nil && len(after.Forms) > 0 {
		b.WriteString("\n| form of task | before | after |\n|---|---|---|\n")
		for _, form := range slices.Sorted(maps.Keys(after.Forms)) {
			earlier := "–"
			if before != nil && before.Forms[form].N > 0 {
				earlier = fmt.Sprintf("%.3f", before.Forms[form].PassRate)
			}
			fmt.Fprintf(b, "| %s | %s | %.3f |\n", cell(form), earlier, after.Forms[form].PassRate)
		}
	}
}

func reportMasked(b *bytes.Buffer, masked map[algorithm.Mask]int, rollouts int) {
	if len(masked) == 0 {
		return
	}
	var parts []string
	for _, mask := range slices.Sorted(maps.Keys(masked)) {
		parts = append(parts, fmt.Sprintf("%s %d", mask, masked[mask]))
	}
	fmt.Fprintf(b, "\nOf %s rollouts, these count in no reward: %s.\n", display.Count(int64(rollouts)), strings.Join(parts, ", "))
}

func reportAPO(b *bytes.Buffer, r *apo.Report) {
	b.WriteString("\n## Result\n\n")
	switch {
	case r.Improved:
		fmt.Fprintf(b, "The prompts below are better than those the run began with: **%+.3f** reward on the validation tasks, %.0f %% interval %.3f to %.3f from %d pairs.\n",
			r.Gain.Mean, 100*r.Gain.Level, r.Gain.Low, r.Gain.High, r.Gain.Pairs)
	case r.Finished && r.Compared != "":
		fmt.Fprintf(b, "No prompts were found that are better beyond doubt: the best of them gained %+.3f, interval %.3f to %.3f. The first prompts stay.\n", r.Gain.Mean, r.Gain.Low, r.Gain.High)
	case r.Finished:
		b.WriteString("No better prompts were found. The first ones stay.\n")
	default:
		b.WriteString("The search has not come to its end; the prompts below lead so far, or are the first ones.\n")
	}
	if r.OutOfBudget {
		b.WriteString("\nThe budget ended the search.\n")
	}
	if len(r.Rounds) > 0 {
		b.WriteString("\n| round | new candidates | best | gain | model calls | tokens |\n|---|---|---|---|---|---|\n")
		for _, one := range r.Rounds {
			fmt.Fprintf(b, "| %d | %d | `%s` | %s | %d | %s |\n", one.Round, one.Candidates, cell(one.Best), display.Gain(one.Gain),
				one.Spent.Calls, display.Count(one.Spent.PromptTokens+one.Spent.CompletionTokens))
		}
	}
	for _, p := range r.Best.Prompts {
		fmt.Fprintf(b, "\n### Prompt %s\n\n%s", p.Name, fenced(p.Prompt))
	}
	reportMasked(b, r.Masked, r.Rollouts)
}

// fenced is a text as it is, in a block of its own.
func fenced(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "text\n" + strings.TrimRight(text, "\n") + "\n" + fence + "\n"
}

func reportBaseline(b *bytes.Buffer, r *baseline.Report) {
	b.WriteString("\n## Result\n\n| tasks | rollouts | attempts | mean reward | rewarded | outcomes |\n|---|---|---|---|---|---|\n")
	for _, part := range []struct {
		name string
		c    baseline.Counts
	}{{"train", r.Train}, {"validation", r.Val}} {
		if part.c.Rollouts == 0 {
			continue
		}
		mean := "none"
		if part.c.Rewarded > 0 {
			mean = fmt.Sprintf("**%.3f**", part.c.RewardMean)
		}
		fmt.Fprintf(b, "| %s | %d | %d | %s | %d | %s |\n", part.name, part.c.Rollouts, part.c.Attempts, mean, part.c.Rewarded, outcomes(part.c))
	}
}

// tail says what else there is.
func (r *run) tail(b *bytes.Buffer) {
	if list := r.notes.all(); len(list) > 0 {
		b.WriteString("\n## Warnings\n\n")
		for _, text := range list {
			fmt.Fprintf(b, "- %s\n", cell(text))
		}
	}
	b.WriteString("\n## Files\n\n")
	for _, one := range []struct{ name, what string }{
		{configFile, "the run file as it was run; relative paths in it start from the folder that it was read in"},
		{recordFile, "what the run is and how it stands"},
		{metricsFile, "a line of JSON for each step, round or task"},
		{bestDir, "the best prompts as files, or where the weights are: best.json"},
		{"checkpoints", "where the training goes on from"},
		{weightsDir, "weights of the embedded model"},
		{"journal.jsonl", "where the search goes on from"},
		{"report.json", "every candidate of the search"},
		{databaseFile, "the store: every rollout and span; look into it with `agl store --db sqlite:" + databaseFile + "` and `agl rollouts`"},
	} {
		if _, err := os.Stat(r.folder.file(one.name)); err == nil {
			fmt.Fprintf(b, "- [%s](%s): %s\n", one.name, one.name, one.what)
		}
	}
}

// first puts a note before the others, if there is one.
func (n *notes) first(text string) {
	if text == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = slices.Insert(n.list, 0, text)
}

// all are the notes so far.
func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}
