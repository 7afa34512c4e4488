package job

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/markdown"
	"github.com/agl-go/agl/trainer/output"
)

const curvesDir = "curves"

// runReport is the report of a run in its folder.
type runReport struct {
	cfg      Config
	result   *Result
	warnings []string
}

// write writes report.md with its curves, and report.html.
func (r *runReport) write(ctx context.Context) error {
	curves, failed := r.cfg.File.Algorithm.Curves(r.result.Output)
	if failed != nil {
		// An incomplete report is better than none.
		r.warnings = append(r.warnings, "The curves are incomplete: "+failed.Error())
	}
	var b bytes.Buffer
	r.writeHead(&b)
	b.WriteString(r.result.Result.Report)
	links, pictures, err := r.writeCurves(curves)
	if links != "" {
		b.WriteString("\n## Curves\n" + links)
	}
	writeFailures(&b, r.result.Failures)
	r.writeTail(&b)
	failed = errors.Join(failed, err, durable.WriteFile(r.result.Report, b.Bytes()), r.cfg.writeHTML(ctx, r.result, b.String(), pictures))
	if failed != nil {
		return fmt.Errorf("write the report: %w", failed)
	}
	return nil
}

// writeCurves draws the curves that have points and returns links to them.
func (r *runReport) writeCurves(curves []algorithms.Curve) (links string, pictures map[string][]byte, err error) {
	pictures = map[string][]byte{}
	const dirMode = 0o755
	dir := filepath.Join(r.result.Output, curvesDir)
	for _, c := range curves {
		svg := c.SVG()
		if svg == nil {
			continue
		}
		if err := os.MkdirAll(dir, dirMode); err != nil {
			return links, pictures, err
		}
		if err := durable.WriteFile(filepath.Join(dir, c.Name+".svg"), svg); err != nil {
			return links, pictures, err
		}
		pictures[curvesDir+"/"+c.Name+".svg"] = svg
		links += fmt.Sprintf("\n![%s](%s/%s.svg)\n", c.Title, curvesDir, c.Name)
	}
	return links, pictures, nil
}

// writeHead says what was run and how it ended.
func (r *runReport) writeHead(b *bytes.Buffer) {
	result := r.result
	rec := &result.Record
	fmt.Fprintf(b, "# %s\n\n", filepath.Base(result.Output))
	switch rec.State {
	case output.StateFinished:
		b.WriteString("The run is finished.\n")
	case output.StateInterrupted:
		fmt.Fprintf(b, "**The run was interrupted** (%s), so these results are not final. Resume with `%s`.\n", markdown.Cell(rec.Error), result.Resume)
	case output.StateFailed:
		next := fmt.Sprintf("Resume with `%s` when the cause is fixed.", result.Resume)
		if result.Diverged {
			next = "Resuming would take the same learning rate and end in the same way."
		}
		fmt.Fprintf(b, "**The run failed**, so these results are not final:\n\n    %s\n\n%s\n",
			strings.ReplaceAll(strings.TrimSpace(rec.Error), "\n", "\n    "), next)
	case output.StateRunning:
	}
	b.WriteString("\n| | |\n|---|---|\n")
	row := func(name, format string, args ...any) {
		fmt.Fprintf(b, "| %s | %s |\n", name, fmt.Sprintf(format, args...))
	}
	row("algorithm", "%s", rec.Algorithm)
	if command := r.cfg.agentCommand(); command != "" {
		row("agent", "`%s`, %d at once", markdown.Cell(command), r.cfg.File.Agent.Concurrency)
	}
	if e := r.cfg.File.Engine; e != nil && e.Tinker != nil {
		row("engine", "%s, %s", markdown.Cell(e.Tinker.Client.URL), markdown.Cell(cmp.Or(e.Tinker.Model, "its first model")))
	}
	if e := r.cfg.File.Engine; e != nil && e.Server != nil {
		row("engine", "`%s`, at %s", markdown.Cell(strings.Join(e.Server.Config.Command, " ")), markdown.Cell(e.Server.Config.BaseURL))
	}
	row("run file", "`%s`, copied to [%s](%s), seed %d", markdown.Cell(rec.Source), output.ConfigFile, output.ConfigFile, r.cfg.File.Seed)
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
	for _, fact := range result.Facts {
		row(fact.Name, "%s", fact.Value)
	}
	row("agl", "%s", rec.Version)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// writeFailures lists the rollouts that failed by reason.
func writeFailures(b *bytes.Buffer, failures []trainer.Failure) {
	if len(failures) == 0 {
		return
	}
	b.WriteString("\n## Failed rollouts\n\n| reason | rollouts | first |\n|---|---|---|\n")
	for _, f := range failures {
		fmt.Fprintf(b, "| %s | %d | `%s` |\n", markdown.Cell(f.Reason), f.Count, f.First)
	}
	if message := strings.TrimSpace(failures[0].Message); strings.Contains(message, "\n") {
		fmt.Fprintf(b, "\nThe first of the most frequent in full:\n\n    %s\n", strings.ReplaceAll(message, "\n", "\n    "))
	}
}

// writeTail lists warnings and files.
func (r *runReport) writeTail(b *bytes.Buffer) {
	if len(r.warnings) > 0 {
		b.WriteString("\n## Warnings\n\n")
		for _, text := range r.warnings {
			fmt.Fprintf(b, "- %s\n", markdown.Cell(text))
		}
	}
	program, folder := r.result.Program, r.result.folder()
	b.WriteString("\n## Files\n\n")
	for _, one := range []struct{ name, content string }{
		{htmlFile, "this report as a page, with conversations before and after, and the worst tasks"},
		{output.ConfigFile, "the run file as it was run; relative paths in it start from the folder where it was read"},
		{output.RecordFile, "what the run is, and its state"},
		{"metrics.jsonl", "one line of JSON for each step, round or task"},
		{bestDir, "the best prompts as files, or where the weights are: best.json"},
		{"checkpoints", "from which training resumes"},
		{weightsDir, "weights of the embedded model"},
		{"journal.jsonl", "from which the search resumes"},
		{"report.json", "every candidate of the search"},
		{keys.DatabaseFile, fmt.Sprintf("the store: every rollout and span; read it with `%[1]s rollouts %[2]s` and `%[1]s trace worst %[2]s`", program, folder)},
	} {
		if _, err := os.Stat(filepath.Join(r.result.Output, one.name)); err == nil {
			fmt.Fprintf(b, "- [%s](%s): %s\n", one.name, one.name, one.content)
		}
	}
}
