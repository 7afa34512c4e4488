package sft_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/algorithm/sft"
)

func copyGolden(t *testing.T, name string) (weights, out string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/"+name)); err != nil {
		t.Fatal(err)
	}
	return dir + "/weights", dir + "/out"
}

// TestResumeGolden resumes testdata/v1, which the first version wrote before it was killed in step 23, and expects the
// metrics and weights of an uninterrupted run.
func TestResumeGolden(t *testing.T) {
	t.Parallel()
	config := func(w *world, out string) sft.Config {
		cfg := w.rejection(out)
		cfg.Rounds, cfg.Steps = 3, 10
		return cfg
	}
	whole, wholeOut := newWorld(t, "", nil), t.TempDir()
	want, err := whole.run(t.Context(), t, config(whole, wholeOut))
	if err != nil {
		t.Fatal(err)
	}
	weights, out := copyGolden(t, "v1")
	w := newWorld(t, weights, nil)
	got, err := w.run(t.Context(), t, config(w, out))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lines(t, wholeOut), lines(t, out)); diff != "" {
		t.Errorf("metrics (-uninterrupted +resumed):\n%s", diff)
	}
	if diff := cmp.Diff(probe(t, whole.service, want.Weights), probe(t, w.service, got.Weights)); diff != "" {
		t.Errorf("weights (-uninterrupted +resumed):\n%s", diff)
	}
	if diff := cmp.Diff(want.Totals, got.Totals); diff != "" || !got.Resumed {
		t.Errorf("resumed %t, totals (-uninterrupted +resumed):\n%s", got.Resumed, diff)
	}
}

// TestTrainResumesGolden resumes testdata/train-v1, which the first version wrote before it was killed in step 47.
func TestTrainResumesGolden(t *testing.T) {
	t.Parallel()
	weights, out := copyGolden(t, "train-v1")
	cfg := config(t, newService(t, weights), out)
	var steps []int
	cfg.OnStep = func(r sft.StepReport) { steps = append(steps, r.Step) }
	result, err := sft.Train(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != 20 || steps[0] != 41 || result.Loss > 0.2 {
		t.Errorf("made steps %v with a final loss of %v, want 41 to 60 and at most 0.2", steps, result.Loss)
	}
}
