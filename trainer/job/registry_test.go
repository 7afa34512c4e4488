package job

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/plot"
	"github.com/agl-go/agl/trainer/runfile"
)

// toy is an algorithm from outside: it evaluates the tasks a number of times. It is all that a fifth algorithm needs.
type toy struct{ times int }

func toyKind() algorithms.Kind {
	return algorithms.Kind{Name: "toy", Doc: "Evaluates the tasks.", Keys: func(string) (yamlfile.Value, algorithms.Algorithm) {
		a := &toy{}
		return yamlfile.Mapping(yamlfile.Key("times", "How often.", yamlfile.Integer(&a.times, yamlfile.Min(1))).Required()), a
	}}
}

func (*toy) Name() string            { return "toy" }
func (a *toy) Describe() string      { return "" }
func (*toy) Needs() algorithms.Needs { return algorithms.Needs{Validation: true} }

func (a *toy) New(p algorithms.Parts) (algorithms.Run, error) {
	return &toyRun{times: a.times, parts: p}, nil
}

func (*toy) Curves(outDir string) ([]algorithms.Curve, error) {
	rates, err := algorithm.ReadLines[algorithm.Rate](filepath.Join(outDir, "metrics.jsonl"))
	var points []plot.Point
	for i, r := range rates {
		points = append(points, plot.Point{X: float64(i + 1), Y: r.PassRate})
	}
	return []algorithms.Curve{{Name: "rate", Chart: plot.Chart{Title: "Pass rate", Series: []plot.Series{{Points: points}}}}}, err
}

type toyRun struct {
	times int
	parts algorithms.Parts
	rate  algorithm.Rate
}

func (r *toyRun) Run(ctx context.Context, in agl.AlgorithmInput) (err error) {
	metrics, err := algorithm.OpenLines(filepath.Join(r.parts.RunConfig.OutDir, "metrics.jsonl"), func([]byte) (bool, error) { return true, nil })
	if err != nil {
		return err
	}
	defer metrics.Close()
	added, err := in.Store.AddResources(ctx, agl.AddResourcesParams{})
	if err != nil {
		return err
	}
	for range r.times {
		report, err := algorithm.Evaluate(ctx, algorithm.EvaluateParams{
			Store: in.Store, Tasks: in.Val, ResourcesID: agl.Some(added.ResourcesID), Rollout: r.parts.RunConfig.Rollout, PassReward: 0.5,
		})
		if err != nil {
			return err
		}
		r.rate = report.Rate
		if err := metrics.Append(r.rate); err != nil {
			return err
		}
		r.parts.Display.Update(display.Update{Line: "evaluated"})
	}
	r.parts.Warn("a toy has learned nothing")
	return nil
}

func (r *toyRun) Result() algorithms.Result {
	return algorithms.Result{
		Summary: map[string]algorithm.Rate{"rate": r.rate}, Report: "\n## Result\n\n" + display.Rate(r.rate) + "\n", Text: "a toy\n",
		Facts: []algorithms.Fact{{Name: "toys", Value: "1"}},
	}
}

// An algorithm that is registered from outside is read from a run file, run, shown and reported.
func TestRegisteredAlgorithm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tasks.jsonl"), []byte(tasks), 0o600); err != nil {
		t.Fatal(err)
	}
	options := runfile.Options{Algorithms: append(algorithms.All(), toyKind())}
	parse := func(text string) (*runfile.File, error) {
		return runfile.Parse("agl.yaml", []byte(`agent: {command: [sh, -c, 'echo "{\"reward\": 0.$(echo $AGL_TASK | tr -dc 0-9)}"']}`+"\n"+text), dir, options)
	}
	for text, want := range map[string]string{
		"data: {train: tasks.jsonl}\nalgorithm: {toy: {times: 1}}":                 "agl.yaml:3: algorithm.toy: candidates are compared on validation tasks",
		"data: {train: tasks.jsonl, val: tasks.jsonl}\nalgorithm: {toy: {}}":       "agl.yaml:3: algorithm.toy.times: missing",
		"data: {train: tasks.jsonl, val: tasks.jsonl}\nalgorithm: {toi: {}}":       "perhaps toy is meant",
		"data: {train: tasks.jsonl, val: tasks.jsonl}":                             "one of apo, baseline, command, grpo, online, sft, toy",
		"data: {train: tasks.jsonl}\nalgorithm: {toy: {times: 1}, baseline: null}": "got toy and baseline, must be one of them",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	file, err := parse("data: {train: tasks.jsonl, val: tasks.jsonl}\nalgorithm: {toy: {times: 2}}")
	if err != nil {
		t.Fatal(err)
	}
	var shown bytes.Buffer
	cfg := Config{File: file, Source: output.Source{Path: filepath.Join(dir, "agl.yaml")}, Environ: os.Environ(), Out: &shown}
	result, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(shown.String(), "evaluated"); n != 2 {
		t.Errorf("%d updates shown:\n%s", n, shown.String())
	}
	report := read(t, result.Report)
	for _, want := range []string{"| algorithm | toy |", "| toys | 1 |", "0.333 of 6", "(curves/rate.svg)", "- a toy has learned nothing"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
	summary := filepath.Join(dir, "summary.json")
	var text strings.Builder
	if err := result.WriteSummary(summary); err != nil {
		t.Fatal(err)
	}
	if err := result.Print(&text, true); err != nil || !strings.HasPrefix(text.String(), "a toy\n") {
		t.Errorf("printed %q, %v", text.String(), err)
	}
	if written := read(t, summary); !jsontext.Value(written).IsValid() || !strings.Contains(written, `"algorithm": "toy"`) || !strings.Contains(written, `"passed": 2`) {
		t.Errorf("summary:\n%s", written)
	}
}
