package apo_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/algorithm/apo/apotest"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// TestResumeGolden resumes testdata/v1, which the first version wrote before its model failed at call 31, and expects the
// report of an uninterrupted search.
func TestResumeGolden(t *testing.T) {
	t.Parallel()
	w := apotest.TwoTemplates()
	whole := &counted{}
	cfg := config(3)
	cfg.Rounds, cfg.GradientModel = 4, whole
	want := anonymous(t, search(t, w, cfg))

	cfg.OutDir = t.TempDir()
	if err := os.CopyFS(cfg.OutDir, os.DirFS("testdata/v1")); err != nil {
		t.Fatal(err)
	}
	model := &counted{}
	cfg.GradientModel = model
	st := memorytest.Open(t)
	serve(t, st, w.Agent)
	a := newAPO(t, cfg)
	if err := a.Run(t.Context(), w.Input(st)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, anonymous(t, a.Report())); diff != "" {
		t.Errorf("report (-uninterrupted +resumed):\n%s", diff)
	}
	const answered = 30
	if len(model.answered) != len(whole.answered)-answered {
		t.Errorf("%d calls were made, want all but the %d in the journal of %d", len(model.answered), answered, len(whole.answered))
	}
}
