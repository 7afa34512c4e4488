package job

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

// TestOnlineSuite: users pay for what the offline suite punishes. The candidate is rolled back before a user meets it, and the
// tasks of the suite are not learned from.
func TestOnlineSuite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const text = `
engine: {policy: {context: 16, dim: 16, heads: 1, layers: 1, ff: 16, characters: "abcdefgsy "}}
proxy: {listen: "127.0.0.1:0", sampling: {max_tokens: 1, temperature: 1}, sessions: {idle_timeout: 1m, reward_window: 1m}}
store: {listen: "127.0.0.1:0"}
data: {val: suite.jsonl}
algorithm:
  online: {steps: 4, rollouts: 32, warm: 4, max_staleness: 3, learning_rate: 0.05, release: {every: 3, share: 0.5, min_sessions: 1000, guards: {}}}
`
	if err := os.WriteFile(filepath.Join(dir, "suite.jsonl"), []byte(strings.Repeat(`{"say":"something"}`+"\n", 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "agl.yaml")
	file, err := runfile.Parse(path, []byte(text), dir, runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	agent := agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
		model, err := task.LLM()
		if err != nil {
			return agl.Result{}, err
		}
		body := fmt.Sprintf(`{"model":%q,"max_tokens":1,"messages":[{"role":"user","content":"say"}]}`, model.Model)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, model.Endpoint+"/chat/completions", strings.NewReader(body))
		if err != nil {
			return agl.Result{}, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+model.APIKey.V)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return agl.Result{}, err
		}
		defer res.Body.Close()
		var reply struct {
			Choices []struct {
				Message struct {
					Content string `json:"content"`
				} `json:"message"`
			} `json:"choices"`
		}
		if err := json.UnmarshalRead(res.Body, &reply); err != nil || len(reply.Choices) == 0 {
			return agl.Result{}, fmt.Errorf("%s: %w", res.Status, err)
		}
		return agl.RewardResult(1 - good(reply.Choices[0].Message.Content)), nil
	})
	result, err := online(t.Context(), t, Config{File: file, Agent: agent, Source: output.Source{Path: path, Text: []byte(text)}}, 1,
		func(replies string) map[string]any { return map[string]any{"value": good(replies)} }, nil)
	if err != nil || result.State != output.StateFinished {
		t.Fatalf("%+v, %v", result, err)
	}
	list, versions := releasesOf(t, result.Output)
	if len(list) == 0 {
		t.Fatal("there were no releases")
	}
	first := list[len(list)-1]
	last := first.Decisions[len(first.Decisions)-1]
	if first.State != release.StateRolledBack || last.By != release.ByGates || !strings.Contains(last.Reason, "offline suite") || first.Suite == nil || first.Suite.Tasks != 60 || first.Evidence.Sessions != [2]int64{} {
		t.Errorf("the first release is %s by %s (%s), suite %+v", first.State, last.By, last.Reason, first.Suite)
	}
	t.Log(last.Reason)
	learned := map[string]bool{}
	for _, step := range stepsOf(t, result.Output) {
		for _, id := range step.Learned {
			learned[id] = true
		}
	}
	candidate := strings.TrimPrefix(first.Candidate.Model, "policy@")
	tried := 0
	for id, seen := range versions {
		if seen[candidate] > 0 {
			tried++
			if learned[id] {
				t.Errorf("rollout %s of the suite was learned from", id)
			}
		}
	}
	if tried != 60 {
		t.Errorf("the candidate has answered %d rollouts, want the 60 of the suite", tried)
	}
}
