package baseline_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// A run goes on with what its results do not depend on, and refuses the rest before it does anything.
func TestResumeRefusesOtherRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	prompt := func(text string) agl.Resources {
		return agl.Resources{{Name: "system", Resource: agl.PromptTemplate{Template: text, Engine: agl.PromptFString}}}
	}
	st := memorytest.Open(t)
	serve(t, st, agent)
	input := agl.AlgorithmInput{Store: st, Train: numbers(5), Val: numbers(2), InitialResources: prompt("add")}
	if err := newBaseline(t, baseline.Config{Epochs: 2, RunConfig: algorithm.RunConfig{OutDir: dir, Seed: 1}}).Run(t.Context(), input); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		edit func(*baseline.Config, *agl.AlgorithmInput)
		want string // empty goes on
	}{
		{"nothing", func(*baseline.Config, *agl.AlgorithmInput) {}, ""},
		{"prompts", func(_ *baseline.Config, in *agl.AlgorithmInput) { in.InitialResources = prompt("sum") }, "metrics.jsonl: the prompts or the sampling parameters were others; use the same settings or another directory"},
		{"no prompts", func(_ *baseline.Config, in *agl.AlgorithmInput) { in.InitialResources = nil }, "the prompts or the sampling parameters were others"},
		{"seed", func(c *baseline.Config, _ *agl.AlgorithmInput) { c.Seed = 2 }, "the seed was 1, it is 2 now"},
		{"epochs", func(c *baseline.Config, _ *agl.AlgorithmInput) { c.Epochs = 1 }, "epoch 2 was begun, and there are 1 now"},
		{"fewer tasks", func(_ *baseline.Config, in *agl.AlgorithmInput) { in.Train = numbers(3) }, "of the train dataset was done, which has 3 tasks now"},
		{"no validation", func(_ *baseline.Config, in *agl.AlgorithmInput) { in.Val = nil }, "of the val dataset was done, which has 0 tasks now"},
		{"tasks", func(_ *baseline.Config, in *agl.AlgorithmInput) { in.Val = numbers(5)[3:] }, "of the val dataset was another"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			if err := os.CopyFS(out, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			cfg, changed := baseline.Config{Epochs: 2, RunConfig: algorithm.RunConfig{OutDir: out, Seed: 1}}, input
			tc.edit(&cfg, &changed)
			b := newBaseline(t, cfg)
			err := b.Run(t.Context(), changed)
			if tc.want == "" {
				if err != nil || b.Report().Train.Rollouts != 10 {
					t.Errorf("%d rollouts (%v), want the 10 that are done", b.Report().Train.Rollouts, err)
				}
				return
			}
			if !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want ErrConflict with %s", err, tc.want)
			}
			if latest, err := st.GetLatestResources(t.Context()); err != nil || algorithm.FingerprintPrompts(latest.Resources) != algorithm.FingerprintPrompts(prompt("add")) {
				t.Errorf("the resources are %v (%v), want those of the first run", latest.Resources, err)
			}
		})
	}
}

// TestResumeAfterDeletedRollout: a rollout that the store no longer had when it was read stands in the results with its task, and the run resumes.
func TestResumeAfterDeletedRollout(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	serve(t, st, agent)
	cfg := baseline.Config{RunConfig: algorithm.RunConfig{OutDir: t.TempDir()}}
	input := agl.AlgorithmInput{Store: forgetful{st}, Train: numbers(1), InitialResources: resources()}
	for range 2 {
		b := newBaseline(t, cfg)
		if err := b.Run(t.Context(), input); err != nil {
			t.Fatal(err)
		}
		if n := b.Report().Train.Outcomes[agl.OutcomeCancelled]; n != 1 {
			t.Errorf("%d rollouts are cancelled, want 1", n)
		}
	}
}

// forgetful deletes rollouts as they end.
type forgetful struct{ agl.Store }

func (f forgetful) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error) {
	ended, err := f.Store.WaitForRollouts(ctx, p)
	for _, r := range ended {
		err = errors.Join(err, f.DeleteRollout(ctx, agl.DeleteRolloutParams{RolloutID: r.RolloutID}))
	}
	return ended, err
}
