package baseline_test

import (
	"os"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// TestResumeGolden resumes testdata/v1, which the first version wrote before it was cancelled after three tasks.
func TestResumeGolden(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/v1")); err != nil {
		t.Fatal(err)
	}
	st := memorytest.Open(t)
	serve(t, st, agent)
	b := newBaseline(t, baseline.Config{RunConfig: algorithm.RunConfig{OutDir: dir}})
	if err := b.Run(t.Context(), agl.AlgorithmInput{Store: st, Train: numbers(5), Val: numbers(2), InitialResources: resources()}); err != nil {
		t.Fatal(err)
	}
	made, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if r := b.Report(); err != nil || made.Total != 4 || r.Train.Rollouts != 5 || r.Val.Rollouts != 2 || r.Train.RewardMean != 0.6 {
		t.Errorf("%d rollouts (%v), report %+v; want the 4 that are left, and all 7 reported", made.Total, err, r)
	}
}
