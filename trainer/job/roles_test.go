package job

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/runfile"
)

// agentsJob is a job of three agents, each with a model of its own: a judge that is not trained, a solver and a critic.
func agentsJob(t *testing.T) Config {
	t.Helper()
	cfg := grpoJob(t, runfile.Engine{Policy: &runfile.Policy{Config: tinySizes()}})
	cfg.File.Agent.Process.Env = append(cfg.File.Agent.Process.Env, envModels+"=critic-model judge")
	cfg.File.Roles = []runfile.Role{
		{Role: algorithm.Role{Name: "judge", ModelName: "judge"}, Frozen: true},
		{Role: algorithm.Role{Name: "solver", ModelName: "solver"}},
		{Role: algorithm.Role{Name: "critic", ModelName: "critic-model"}},
	}
	return cfg
}

// TestAgents: two agents learn, a third keeps its weights, and all are served by one engine.
func TestAgents(t *testing.T) {
	t.Parallel()
	cfg := agentsJob(t)
	result := runJob(t, cfg)
	steps, err := algorithm.ReadLines[grpo.StepReport](filepath.Join(cfg.File.Output, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	updates := map[string]int{}
	for _, s := range steps[1:] {
		critic := s.Roles["critic"]
		if s.Role != "solver" {
			t.Errorf("step %d: its figures are those of %q, want solver", s.Step, s.Role)
		}
		if s.Calls != 6 || s.OtherCalls != 12 || critic.Calls != 6 || critic.OtherCalls != 12 || len(s.Masked)+len(critic.Masked) > 0 {
			t.Errorf("step %d: calls %d and %d, of others %d and %d, masked %v and %v; want 6, 12 and none", s.Step, s.Calls, critic.Calls, s.OtherCalls, critic.OtherCalls, s.Masked, critic.Masked)
		}
		updates["solver"] += s.Updates
		updates["critic"] += critic.Updates
	}
	if updates["solver"] == 0 || updates["critic"] == 0 {
		t.Errorf("updates %v, want some of both", updates)
	}
	curves, err := cfg.File.Algorithm.Curves(cfg.File.Output)
	if err != nil {
		t.Fatal(err)
	}
	reward := curves[slices.IndexFunc(curves, func(c algorithms.Curve) bool { return c.Name == "reward" })]
	var names []string
	for _, series := range reward.Series {
		names = append(names, fmt.Sprintf("%s %d", series.Name, len(series.Points)))
	}
	if want := fmt.Sprintf("[critic %[1]d solver %[1]d]", len(steps)-1); fmt.Sprint(names) != want {
		t.Errorf("the curves of rewards and their points are %v, want %s", names, want)
	}
	summary, ok := result.Summary.(algorithms.GRPOSummary)
	if !ok || summary.Roles["critic"] == "" || summary.Roles["critic"] == result.Best.Weights || !strings.HasPrefix(result.Best.Weights, "tinker://") {
		t.Errorf("weights %q and %q, want those of two models", result.Best.Weights, summary.Roles["critic"])
	}
}

// TestAgentsDryRun: a dry run serves the models of all agents, those that are not trained, too.
func TestAgentsDryRun(t *testing.T) {
	t.Parallel()
	cfg := agentsJob(t)
	trial, err := DryRun(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if trial.Outcome.Kind != agl.OutcomeOK || len(trial.Triplets) != 3 || trial.TripletsError != nil {
		t.Errorf("outcome %+v with %d model calls, %v; want three that are answered", trial.Outcome, len(trial.Triplets), trial.TripletsError)
	}
}

// TestAgentsServed: what was trained is served for each agent, also for one that keeps the first weights, and a dry run gets it, too.
func TestAgentsServed(t *testing.T) {
	t.Parallel()
	cfg := agentsJob(t)
	demos := filepath.Join(filepath.Dir(cfg.Source.Path), "demos.jsonl")
	if err := os.WriteFile(demos, []byte(`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.File.Engine.Policy.WarmStart = &engine.WarmStart{Path: demos, Steps: 2, Batch: 1}
	cfg.File.Roles[2].Schedule = algorithm.Schedule{Peak: 0.01, Floor: 0.01}
	cfg.Source.Text = []byte(`
agent: {command: [agent]}
agents: {judge: {train: false}, solver: {}, critic: {model: critic-model, learning_rate: 0.01}}
engine: {policy: {layers: 1, dim: 16, heads: 1, ff: 16, warm_start: {file: demos.jsonl}}}
data: {train: tasks.jsonl}
algorithm: {grpo: {steps: 4}}
`)
	result := runJob(t, cfg)
	before := filesOf(t, result.Output)
	trained, err := OpenTrained(t.Context(), result.Output, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := trained.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if trained.Name != "solver" || !slices.Equal(trained.Others, []string{"judge", "critic-model"}) {
		t.Errorf("the models are %q and %q", trained.Name, trained.Others)
	}
	summary := result.Summary.(algorithms.GRPOSummary) //nolint:forcetypeassert // it panics
	said := map[string]bool{}
	for model, weights := range map[string]string{
		"solver": result.Best.Weights, "critic-model": summary.Roles["critic"], "judge": result.Best.Agents["judge"],
	} {
		if err := trained.engine.Serve(t.Context(), weights, "checkpoint"); err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		var both [2]string
		for i, version := range []string{model, "checkpoint"} {
			logprobs, err := trained.engine.Logprobs(t.Context(), version, []int32{1, 2, 3})
			if err != nil {
				t.Fatal(err)
			}
			both[i] = fmt.Sprint(logprobs)
		}
		if both[0] != both[1] || said[both[0]] {
			t.Errorf("%s says %s, its checkpoint %s, and others %v; want what no other does", model, both[0], both[1], said)
		}
		said[both[0]] = true
	}
	for agent, weights := range map[string]string{
		"": result.Best.Weights, "solver": result.Best.Weights, "critic": summary.Roles["critic"], "judge": result.Best.Agents["judge"],
	} {
		p, err := TrainedPolicy(result.Output, agent)
		if err != nil {
			t.Fatalf("agent %q: %v", agent, err)
		}
		path, err := tinker.ParsePath(weights)
		if want := policy.WeightsFile(filepath.Join(result.Output, weightsDir), path); err != nil || p.Config.Base != want {
			t.Errorf("agent %q has its weights in %s, want %s (%v)", agent, p.Config.Base, want, err)
		}
	}
	const want = `agent "nobody": the run in %s has weights of judge, solver, critic`
	if _, err := TrainedPolicy(result.Output, "nobody"); !errors.Is(err, agl.ErrInvalid) || err.Error() != fmt.Sprintf(want, result.Output) {
		t.Errorf("an agent that is not there: %v", err)
	}
	cfg.From = result.Output
	if trial, err := DryRun(t.Context(), cfg); err != nil || len(trial.Triplets) != 3 {
		t.Errorf("a dry run: %+v, %v", trial, err)
	}
	if after := filesOf(t, result.Output); !slices.Equal(before, after) {
		t.Errorf("files of the run: %q before, %q after", before, after)
	}
}

// filesOf are the files of a folder.
func filesOf(t *testing.T, folder string) (files []string) {
	t.Helper()
	if err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		files = append(files, path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files
}
