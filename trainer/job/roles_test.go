package job

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/runfile"
)

// TestAgents: two agents learn, a third keeps its weights, and all are served by one engine.
func TestAgents(t *testing.T) {
	t.Parallel()
	cfg := grpoJob(t, runfile.Engine{Policy: &runfile.Policy{Config: tinySizes()}})
	cfg.File.Agent.Process.Env = append(cfg.File.Agent.Process.Env, envModels+"=critic-model judge")
	cfg.File.Roles = []runfile.Role{
		{Role: algorithm.Role{Name: "judge", ModelName: "judge"}, Frozen: true},
		{Role: algorithm.Role{Name: "solver", ModelName: "solver"}},
		{Role: algorithm.Role{Name: "critic", ModelName: "critic-model"}},
	}
	result := runJob(t, cfg)
	steps, err := algorithm.ReadLines[grpo.StepReport](filepath.Join(cfg.File.Output, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	updates := map[string]int{}
	for _, s := range steps[1:] {
		critic := s.Roles["critic"]
		if s.Calls != 6 || s.OtherCalls != 12 || critic.Calls != 6 || critic.OtherCalls != 12 || len(s.Masked)+len(critic.Masked) > 0 {
			t.Errorf("step %d: calls %d and %d, of others %d and %d, masked %v and %v; want 6, 12 and none", s.Step, s.Calls, critic.Calls, s.OtherCalls, critic.OtherCalls, s.Masked, critic.Masked)
		}
		updates["solver"] += s.Updates
		updates["critic"] += critic.Updates
	}
	if updates["solver"] == 0 || updates["critic"] == 0 {
		t.Errorf("updates %v, want some of both", updates)
	}
	summary, ok := result.Summary.(algorithms.GRPOSummary)
	if !ok || summary.Roles["critic"] == "" || summary.Roles["critic"] == result.Best.Weights || !strings.HasPrefix(result.Best.Weights, "tinker://") {
		t.Errorf("weights %q and %q, want those of two models", result.Best.Weights, summary.Roles["critic"])
	}
}

// TestAgentsDryRun: a dry run serves the models of all agents, those that are not trained, too.
func TestAgentsDryRun(t *testing.T) {
	t.Parallel()
	cfg := grpoJob(t, runfile.Engine{Policy: &runfile.Policy{Config: tinySizes()}})
	cfg.File.Agent.Process.Env = append(cfg.File.Agent.Process.Env, envModels+"=critic-model judge")
	cfg.File.Roles = []runfile.Role{
		{Role: algorithm.Role{Name: "judge", ModelName: "judge"}, Frozen: true},
		{Role: algorithm.Role{Name: "solver", ModelName: "solver"}},
		{Role: algorithm.Role{Name: "critic", ModelName: "critic-model"}},
	}
	trial, err := DryRun(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if trial.Outcome.Kind != agl.OutcomeOK || len(trial.Triplets) != 3 || trial.TripletsError != nil {
		t.Errorf("outcome %+v with %d model calls, %v; want three that are answered", trial.Outcome, len(trial.Triplets), trial.TripletsError)
	}
}
