package grpo_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// TestSilentAgent: an agent that never answers is masked as a timeout after its
// limit, and does not stop training.
func TestSilentAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", nil)
		cfg := w.config("")
		cfg.Steps, cfg.Rollout.TimeoutSeconds = 2, agl.Some(30.0)
		var rec recorder
		rec.attach(&cfg)
		start := time.Now()
		if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, task{Fault: "hang"})}); err != nil {
			t.Fatal(err)
		}
		for _, step := range rec.steps {
			if diff := cmp.Diff(map[algorithm.Mask]int{"timeout": 4}, step.Masked); diff != "" {
				t.Errorf("step %d: masked (-want +got):\n%s", step.Step, diff)
			}
		}
		if took := time.Since(start); took < 60*time.Second || took > 120*time.Second {
			t.Errorf("two steps took %v of fake time, want little more than two limits of 30 s", took)
		}
	})
}
