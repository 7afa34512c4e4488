package grpo_test

import (
	"os"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/grpo"
)

// TestResumeGolden resumes testdata/v1, which the first version wrote before it was killed in step 5, and expects the
// metrics and weights of an uninterrupted run.
func TestResumeGolden(t *testing.T) {
	t.Parallel()
	in := agl.AlgorithmInput{Train: tasks(t), Val: tasks(t)}
	whole, wholeOut := newWorld(t, "", nil), t.TempDir()
	uninterrupted := newGRPO(t, whole.config(wholeOut))
	if err := whole.run(t.Context(), t, uninterrupted, in); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/v1")); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, dir+"/weights", nil)
	cfg := w.config(dir + "/out")
	var rec recorder
	rec.attach(&cfg)
	resumed := newGRPO(t, cfg)
	if err := w.run(t.Context(), t, resumed, in); err != nil {
		t.Fatal(err)
	}
	if len(rec.starts) != 1 || rec.starts[0].Step != 3 || !rec.starts[0].Resumed {
		t.Errorf("started with %+v, want step 3, resumed", rec.starts)
	}
	if diff := cmp.Diff(withoutDrift(t, metricsLines(t, wholeOut), 3), metricsLines(t, dir+"/out"), cmp.Transformer("text", func(v jsontext.Value) string { return string(v) })); diff != "" {
		t.Errorf("metrics (-uninterrupted +resumed):\n%s", diff)
	}
	if diff := cmp.Diff(probe(t, whole.service, uninterrupted.Summary().Weights), probe(t, w.service, resumed.Summary().Weights)); diff != "" {
		t.Errorf("weights (-uninterrupted +resumed):\n%s", diff)
	}
	if diff := cmp.Diff(uninterrupted.Summary().Totals, resumed.Summary().Totals); diff != "" {
		t.Errorf("totals (-uninterrupted +resumed):\n%s", diff)
	}
}

// withoutDrift removes what the first version did not write from the lines up to a step.
func withoutDrift(t *testing.T, lines []jsontext.Value, step int) []jsontext.Value {
	t.Helper()
	for i := range lines[:step+1] {
		var r grpo.StepReport
		if err := json.Unmarshal(lines[i], &r); err != nil {
			t.Fatal(err)
		}
		r.Drift = nil
		line, err := json.Marshal(r, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = line
	}
	return lines
}
