package grpo_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/tinker"
)

// TestResume ends a run in the middle of step 5. The next one goes on after step 4 if
// the run was interrupted, and from the checkpoint of step 3 if it was killed. It ends
// with the weights and the metrics of a run that was neither, bit for bit.
func TestResume(t *testing.T) {
	t.Parallel()
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		testResume(t, 4, 4)
	})
	t.Run("interrupted when all rollouts have come", func(t *testing.T) {
		t.Parallel()
		testResume(t, 4, 16)
	})
	t.Run("interrupted before the optimizer step", func(t *testing.T) {
		t.Parallel()
		testResume(t, 4, 0)
	})
	t.Run("interrupted in the validation", func(t *testing.T) {
		t.Parallel()
		testResume(t, 5, -1)
	})
	t.Run("interrupted in the optimizer step", func(t *testing.T) {
		t.Parallel()
		testResume(t, 5, inOptimizer)
	})
	t.Run("interrupted between two optimizer steps", func(t *testing.T) {
		t.Parallel()
		testResume(t, 5, inMinibatch)
	})
	t.Run("interrupted as it publishes", func(t *testing.T) {
		t.Parallel()
		testResume(t, 5, inPublish)
	})
	t.Run("interrupted in the checkpoint", func(t *testing.T) {
		t.Parallel()
		testResume(t, 5, inCheckpoint)
	})
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		testResume(t, 3, 4)
	})
}

// Where testResume ends a run, beside numbers of rollouts: in the step 5.
const (
	inForward    = 0  // the engine has computed log-probabilities, before it trains
	inValidation = -1 // after it
	inOptimizer  = -2
	inMinibatch  = -3 // after the first of two optimizer steps
	inPublish    = -4
	inCheckpoint = -5
)

// testResume resumes from a step a run that ended when so many rollouts of step 5 had come, or elsewhere in that step.
func testResume(t *testing.T, from, rollouts int) {
	t.Helper()
	in := agl.AlgorithmInput{Train: tasks(t), Val: tasks(t)}

	whole, wholeOut := newWorld(t, "", nil), t.TempDir()
	config := func(w *world, out string) grpo.Config {
		cfg := w.config(out)
		switch rollouts {
		case inForward:
			cfg.Correction.Kind = grpo.TokenTIS
		case inValidation:
			cfg.ValidateEvery = 5
		case inMinibatch:
			cfg.Minibatches = 2
		case inCheckpoint:
			cfg.CheckpointEvery = 5
		}
		return cfg
	}
	uninterrupted := newGRPO(t, config(whole, wholeOut))
	if err := whole.run(t.Context(), t, uninterrupted, in); err != nil {
		t.Fatal(err)
	}

	st, weights, out := memorytest.Open(t), t.TempDir(), t.TempDir()
	first := newWorld(t, weights, st)
	ctx, kill := context.WithCancel(t.Context())
	cfg := config(first, out)
	nth := func(n int) func() {
		return func() {
			if n--; n == 0 {
				kill()
			}
		}
	}
	switch rollouts {
	case inForward:
		cfg.Service = watched{Service: first.service, forward: nth(5)}
	case inOptimizer:
		cfg.Service = watched{Service: first.service, gradient: nth(5)}
	case inMinibatch:
		cfg.Service = watched{Service: first.service, step: nth(9)}
	case inPublish:
		cfg.Service = watched{Service: first.service, snapshot: nth(6)} // the first is that of the initial weights
	case inCheckpoint:
		cfg.Service = watched{Service: first.service, save: nth(2)}
	case inValidation:
		var validated atomic.Int64
		first.onRollout = func(t agl.Task) {
			if t.Rollout.Mode == agl.ModeVal && validated.Add(1) == digits+2 {
				kill()
			}
		}
	}
	cfg.Progress.OnRollouts = func(_ algorithm.Phase, step, done, _ int) {
		if step == 5 && done == rollouts {
			kill()
		}
	}
	if err := first.run(ctx, t, newGRPO(t, cfg), in); !errors.Is(err, context.Canceled) {
		t.Fatalf("the interrupted run gave %v, want context.Canceled", err)
	}
	for _, p := range first.published {
		if _, err := first.service.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: p.Snapshot}); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("snapshot %s of the interrupted run: %v, want none", p.Snapshot, err)
		}
	}
	if n := len(metricsLines(t, out)); n != 5 {
		t.Fatalf("%d lines of metrics before the resumption, want those of steps 0 to 4", n)
	}
	if from == 3 {
		if err := os.Remove(filepath.Join(out, "checkpoints", "checkpoint-00000004.json")); err != nil {
			t.Fatal(err)
		}
	}
	leftover := orphan(t, st, out)

	second := newWorld(t, weights, st)
	cfg = config(second, out)
	var rec recorder
	rec.attach(&cfg)
	resumed := newGRPO(t, cfg)
	if err := second.run(t.Context(), t, resumed, in); err != nil {
		t.Fatal(err)
	}
	if len(rec.starts) != 1 || rec.starts[0].Step != from || !rec.starts[0].Resumed || rec.starts[0].Before == nil {
		t.Errorf("the second run started with %+v, want step %d, resumed, with the validation before", rec.starts, from)
	}
	if diff := cmp.Diff(metricsLines(t, wholeOut), metricsLines(t, out), cmp.Transformer("text", func(v jsontext.Value) string { return string(v) })); diff != "" {
		t.Errorf("metrics (-uninterrupted +resumed):\n%s", diff)
	}
	want := probe(t, whole.service, uninterrupted.Summary().Weights)
	got := probe(t, second.service, resumed.Summary().Weights)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("weights (-uninterrupted +resumed):\n%s", diff)
	}
	a, b := uninterrupted.Summary(), resumed.Summary()
	if diff := cmp.Diff(a.Totals, b.Totals); diff != "" || !b.Resumed {
		t.Errorf("totals (-uninterrupted +resumed):\n%s", diff)
	}
	if a.Before.Rate != b.Before.Rate || a.After.Rate != b.After.Rate {
		t.Errorf("validations %v, %v; want %v, %v", b.Before.Rate, b.After.Rate, a.Before.Rate, a.After.Rate)
	}
	r, err := st.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: leftover})
	if err != nil || r.Status != agl.RolloutCancelled {
		t.Errorf("the rollout that the killed run left is %s (%v), want cancelled", r.Status, err)
	}
}

// orphan makes a rollout as a run that was killed with its runners would have
// left it.
func orphan(t *testing.T, st agl.Store, out string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(out, "checkpoints", checkpointOf(t, out)))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		State struct {
			Run string `json:"run"`
		} `json:"state"`
	}
	if err := json.Unmarshal(data, &file); err != nil || file.State.Run == "" {
		t.Fatalf("no run id in the checkpoint: %v", err)
	}
	r, err := st.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{
		Input: rawjson.Null(), Metadata: jsontext.Value(`{"run":"` + file.State.Run + `"}`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r.RolloutID
}

// checkpointOf is the name of a checkpoint.
func checkpointOf(t *testing.T, out string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(out, "checkpoints"))
	if err != nil || len(entries) == 0 {
		t.Fatalf("checkpoints %v, %v", entries, err)
	}
	return entries[0].Name()
}

// probe describes weights and optimizer: what they say about every transition,
// before and after one more step.
func probe(t *testing.T, service tinker.Service, path string) [][]float32 {
	t.Helper()
	model, err := service.CreateModel(t.Context(), tinker.CreateModelParams{})
	if err != nil {
		t.Fatal(err)
	}
	if err := model.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path, WithOptimizer: true}); err != nil {
		t.Fatal(err)
	}
	var d tinker.Datum
	for i := range int32(modelContext) {
		d.Input, d.Targets = append(d.Input, i%vocab), append(d.Targets, (i+1)%vocab)
	}
	batch := tinker.ForwardParams{Data: []tinker.Datum{d}, Loss: tinker.Loss{Name: tinker.CrossEntropy}}
	var out [][]float32
	for range 2 {
		res, err := model.ForwardBackward(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, res.Logprobs[0])
		if _, err := model.OptimStep(t.Context(), tinker.AdamParams{LearningRate: 1e-2}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestResumeFinished: a run that is done is not done again, and can be extended.
func TestResumeFinished(t *testing.T) {
	t.Parallel()
	st, weights, out := memorytest.Open(t), t.TempDir(), t.TempDir()
	in := agl.AlgorithmInput{Train: tasks(t), Val: tasks(t)}
	first := newWorld(t, weights, st)
	g := newGRPO(t, first.config(out))
	if err := first.run(t.Context(), t, g, in); err != nil {
		t.Fatal(err)
	}
	before := len(metricsLines(t, out))

	again := newWorld(t, weights, st)
	second := newGRPO(t, again.config(out))
	if err := again.run(t.Context(), t, second, in); err != nil {
		t.Fatal(err)
	}
	if len(again.served) != 0 || len(again.published) != 1 || second.Summary().After.Rate != g.Summary().After.Rate {
		t.Errorf("the second run made %d rollouts and published %d times; want none, once, and the validation of the first", len(again.served), len(again.published))
	}
	longer := newWorld(t, weights, st)
	cfg := longer.config(out)
	cfg.Steps = 8
	if err := longer.run(t.Context(), t, newGRPO(t, cfg), in); err != nil {
		t.Fatal(err)
	}
	if n := len(metricsLines(t, out)); n != before+2 {
		t.Errorf("%d lines of metrics after two more steps, want %d", n, before+2)
	}
}

// stateless cannot say where it is from the n-th time on, which ends a run between
// the two halves of a checkpoint.
type stateless struct {
	grpo.Source

	n int
}

func (s *stateless) State() (jsontext.Value, error) {
	if s.n--; s.n < 0 {
		return nil, errBroken
	}
	return s.Source.State()
}

// TestResumeBetweenHalves: weights whose checkpoint was never written are deleted
// by the run that goes on.
func TestResumeBetweenHalves(t *testing.T) {
	t.Parallel()
	weights, out := t.TempDir(), t.TempDir()
	run := func(saves int) error {
		w := newWorld(t, weights, nil)
		source, err := grpo.NewDatasetSource(tasks(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		cfg := w.config(out)
		cfg.Source = &stateless{source, saves}
		return w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{})
	}
	list := func() []string {
		files, err := filepath.Glob(filepath.Join(weights, "*", "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range files {
			files[i] = strings.TrimPrefix(files[i], weights+"/")
		}
		return files
	}
	const model = "agl-policy-1/weights/"
	if err := run(8); !errors.Is(err, errBroken) { // one before each of 6 steps, two for the checkpoints of steps 0 and 3
		t.Fatalf("got %v, want to be broken", err)
	}
	if diff := cmp.Diff([]string{model + "step-00000000.ckpt", model + "step-00000003.ckpt", model + "step-00000006.ckpt"}, list()); diff != "" {
		t.Fatalf("weights of the broken run (-want +got):\n%s", diff)
	}
	if err := run(99); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{model + "step-00000003.ckpt", "agl-policy-2/weights/step-00000006.ckpt"}, list()); diff != "" {
		t.Errorf("weights of the run that went on (-want +got):\n%s", diff)
	}
}

// TestResumeFromDamage: with the newest weights damaged, a run goes on from the
// checkpoint before and makes the lost steps again.
func TestResumeFromDamage(t *testing.T) {
	t.Parallel()
	weights, out := t.TempDir(), t.TempDir()
	first := newWorld(t, weights, nil)
	g := newGRPO(t, first.config(out))
	if err := first.run(t.Context(), t, g, agl.AlgorithmInput{Train: tasks(t)}); err != nil {
		t.Fatal(err)
	}
	want := probe(t, first.service, g.Summary().Weights)
	path, err := tinker.ParsePath(g.Summary().Weights)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(weights, path.Model, string(path.Kind), path.Name+".ckpt"), 100); err != nil {
		t.Fatal(err)
	}
	second := newWorld(t, weights, nil)
	cfg := second.config(out)
	var rec recorder
	rec.attach(&cfg)
	again := newGRPO(t, cfg)
	if err := second.run(t.Context(), t, again, agl.AlgorithmInput{Train: tasks(t)}); err != nil {
		t.Fatal(err)
	}
	if len(rec.starts) != 1 || rec.starts[0].Step != 3 {
		t.Errorf("the second run started with %+v, want step 3", rec.starts)
	}
	if diff := cmp.Diff(want, probe(t, second.service, again.Summary().Weights)); diff != "" {
		t.Errorf("weights (-before the damage +made again):\n%s", diff)
	}
}

func TestResumeRefusesOtherRun(t *testing.T) {
	t.Parallel()
	weights, out := t.TempDir(), t.TempDir()
	w := newWorld(t, weights, nil)
	cfg := w.config(out)
	cfg.Steps = 2
	cfg.Origin = "base model"
	resources := func(template string, temperature string) agl.Resources {
		return agl.Resources{
			{Name: "system", Resource: agl.PromptTemplate{Template: template, Engine: agl.PromptFString}},
			{Name: "main_llm", Resource: agl.LLM{Endpoint: "http://127.0.0.1/v1", Model: "m", SamplingParameters: jsontext.Value(`{"temperature":` + temperature + `}`)}},
		}
	}
	input := agl.AlgorithmInput{Train: tasks(t), Val: tasks(t), InitialResources: resources("add {a}", "1")}
	if err := w.run(t.Context(), t, newGRPO(t, cfg), input); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		edit func(*grpo.Config, *agl.AlgorithmInput)
		want string // empty goes on
	}{
		{"seed", func(c *grpo.Config, _ *agl.AlgorithmInput) { c.Seed = 2 }, `seed is "2" here and "1" there`},
		{"model", func(c *grpo.Config, _ *agl.AlgorithmInput) { c.Model.Seed = 2 }, `model_seed is "2" here and "1" there`},
		{"group", func(c *grpo.Config, _ *agl.AlgorithmInput) { c.GroupSize = 8 }, `batch is "prompts=4 group=8 minibatches=1" here`},
		{"data", func(_ *grpo.Config, in *agl.AlgorithmInput) { in.Train = tasks(t, task{Digit: 3}) }, `data is "1 tasks `},
		{"validation tasks", func(_ *grpo.Config, in *agl.AlgorithmInput) { in.Val = tasks(t, task{Digit: 3}) }, `val is "1 tasks `},
		{"no validation tasks", func(_ *grpo.Config, in *agl.AlgorithmInput) { in.Val = nil }, `val is "none" here`},
		{"fewer validation tasks", func(c *grpo.Config, _ *agl.AlgorithmInput) { c.Validation.N = 1 }, `validation is "n=1 pass_reward=`},
		{"what passes", func(c *grpo.Config, _ *agl.AlgorithmInput) { c.PassReward = 0.25 }, `pass_reward=0.25 sampling={}" here`},
		{"prompts", func(_ *grpo.Config, in *agl.AlgorithmInput) { in.InitialResources = resources("sum {a}", "1") }, `prompts is "1 prompts `},
		{"sampling", func(_ *grpo.Config, in *agl.AlgorithmInput) { in.InitialResources = resources("add {a}", "0.5") }, `sampling is "main_llm={\"temperature\":0.5}" here`},
		{"fewer steps", func(c *grpo.Config, _ *agl.AlgorithmInput) { c.Steps = 1 }, "2 steps are done in " + out + ", and the run is to have 1 now"},
		{"first weights", func(c *grpo.Config, _ *agl.AlgorithmInput) { c.Origin = "warm_start" }, `origin is "warm_start" here and "base model" there`},
		{"a temperature that is written in another way", func(_ *grpo.Config, in *agl.AlgorithmInput) { in.InitialResources = resources("add {a}", "1.0") }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, weights, nil)
			cfg := w.config(out)
			cfg.Steps, cfg.Origin = 2, "base model"
			changed := input
			tc.edit(&cfg, &changed)
			err := w.run(t.Context(), t, newGRPO(t, cfg), changed)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("got %v, want a run that goes on", err)
			case tc.want != "" && (!errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want ErrConflict with %s", err, tc.want)
			}
		})
	}
}

// TestResumeCurriculum: an interrupted run with a curriculum goes on with the tasks that it would have had.
func TestResumeCurriculum(t *testing.T) {
	t.Parallel()
	in := agl.AlgorithmInput{Train: tasks(t)}
	config := func(w *world, out string) grpo.Config {
		cfg := w.config(out)
		cfg.Curriculum = &grpo.Curriculum{Explore: 0.3}
		cfg.PromptsPerStep, cfg.Steps = 3, 8
		return cfg
	}
	whole, wholeOut := newWorld(t, "", nil), t.TempDir()
	if err := whole.run(t.Context(), t, newGRPO(t, config(whole, wholeOut)), in); err != nil {
		t.Fatal(err)
	}
	st, weights, out := memorytest.Open(t), t.TempDir(), t.TempDir()
	first := newWorld(t, weights, st)
	ctx, kill := context.WithCancel(t.Context())
	cfg := config(first, out)
	cfg.Progress.OnRollouts = func(_ algorithm.Phase, step, _, _ int) {
		if step == 5 {
			kill()
		}
	}
	if err := first.run(ctx, t, newGRPO(t, cfg), in); !errors.Is(err, context.Canceled) {
		t.Fatalf("the interrupted run gave %v, want context.Canceled", err)
	}
	second := newWorld(t, weights, st)
	if err := second.run(t.Context(), t, newGRPO(t, config(second, out)), in); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(metricsLines(t, wholeOut), metricsLines(t, out), cmp.Transformer("text", func(v jsontext.Value) string { return string(v) })); diff != "" {
		t.Errorf("metrics (-uninterrupted +resumed):\n%s", diff)
	}
}
