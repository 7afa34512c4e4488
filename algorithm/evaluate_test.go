package algorithm_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func TestEvaluate(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	withResources(t, st)
	serve(t, st, echo)
	data := agl.Tasks{}
	for range 4 {
		for _, in := range []string{"1", "0", "0.5", "2", `"away"`, `"silent"`, `"bad"`} {
			data = append(data, jsontext.Value(in))
		}
	}
	var progress []int
	report, err := algorithm.Evaluate(t.Context(), algorithm.EvaluateParams{
		Store: st, Tasks: data, N: 21, ResourcesID: agl.Some("r"), Metadata: jsontext.Value(`{"run":"x"}`), Seed: 5,
		Form: func(task jsontext.Value) string {
			if task.Kind() == '0' {
				return "number"
			}
			return ""
		},
		Progress: func(done, total int) { progress = append(progress, done, total) },
	})
	if err != nil {
		t.Fatal(err)
	}
	results := report.Results
	report.Results = nil
	want := algorithm.Report{
		Rate: algorithm.NewRate(6, 15), RewardMean: 3.5 * 3 / 15,
		Masked: map[algorithm.Mask]int{"model_error": 3, "missing_reward": 3},
		Forms:  map[string]algorithm.Rate{"number": algorithm.NewRate(6, 12)},
	}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if n := len(progress); n != 6 || progress[n-2] != 21 || progress[n-1] != 21 {
		t.Errorf("progress %v, want three groups up to 21 of 21", progress)
	}
	seeds := map[string]bool{}
	for i, r := range results {
		rollout, err := st.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: r.RolloutID})
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`{"run":"x","index":%d,"seed":%d}`, i, algorithm.DeriveSeed(5, "evaluate", i))
		if string(rollout.Metadata) != want || rollout.Mode != agl.ModeVal || string(rollout.Input) != string(data[i]) {
			t.Errorf("rollout %d: mode %q, input %s, metadata %s; want val, %s, %s", i, rollout.Mode, rollout.Input, rollout.Metadata, data[i], want)
		}
		seeds[want] = true
	}
	if len(seeds) != 21 {
		t.Errorf("%d distinct rollouts, want 21", len(seeds))
	}
}

func TestEvaluatePassReward(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	withResources(t, st)
	serve(t, st, echo)
	report, err := algorithm.Evaluate(t.Context(), algorithm.EvaluateParams{
		Store: st, Tasks: agl.Tasks{jsontext.Value("0.4"), jsontext.Value("0.5")}, ResourcesID: agl.Some("r"), PassReward: 0.5,
	})
	if err != nil || report.Passed != 1 || report.N != 2 {
		t.Errorf("%+v, %v; want 1 of 2", report, err)
	}
}

// TestEvaluateDimensions: a rollout without a dimension does not count in its mean, a failed agent counts as 0 in all, and what the
// infrastructure failed in none.
func TestEvaluateDimensions(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	withResources(t, st)
	serve(t, st, func(ctx context.Context, task agl.Task) (agl.Result, error) {
		var rewards []agl.Reward
		if err := task.DecodeInput(&rewards); err != nil {
			return echo(ctx, task)
		}
		return agl.Result{Rewards: rewards}, nil
	})
	both := jsontext.Value(`[{"Name": "answer", "Value": 1}, {"Name": "verdict", "Value": 0.5}]`)
	one := jsontext.Value(`[{"Name": "answer", "Value": 1}]`)
	for _, tc := range []struct {
		name  string
		tasks agl.Tasks
		want  map[string]float64
	}{
		{"several", agl.Tasks{both, one, jsontext.Value(`"fails"`), jsontext.Value(`"away"`)}, map[string]float64{"answer": 2.0 / 3, "verdict": 0.25}},
		{"one", agl.Tasks{one, jsontext.Value("1")}, nil},
	} {
		report, err := algorithm.Evaluate(t.Context(), algorithm.EvaluateParams{Store: st, Tasks: tc.tasks, ResourcesID: agl.Some("r")})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, report.Dimensions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestEvaluateRejects(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	for name, e := range map[string]algorithm.EvaluateParams{
		"no store":   {Tasks: agl.Tasks{jsontext.Value("1")}},
		"no tasks":   {Store: st},
		"empty":      {Store: st, Tasks: agl.Tasks{}},
		"negative N": {Store: st, Tasks: agl.Tasks{jsontext.Value("1")}, N: -1},
	} {
		if _, err := algorithm.Evaluate(t.Context(), e); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}
