package firsthour

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agl-go/agl/test/process"
	"github.com/go-json-experiment/json"
)

// TestPromptsReport checks that the report of a prompt search compares the rewards of the first prompts with those of the best
// ones, although the last rollouts have both.
func TestPromptsReport(t *testing.T) {
	t.Parallel()
	// The model that criticises and edits prompts.
	writer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		said := "It does not say that a number is wanted."
		if strings.Contains(string(body), said) {
			said = "Answer {question} with a number."
		}
		err = json.MarshalWrite(w, map[string]any{
			"id": "1", "object": "chat.completion", "model": "writer", "usage": map[string]int{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]string{"role": "assistant", "content": said}}},
		})
		if err != nil {
			t.Error(err)
		}
	}))
	defer writer.Close()
	dir := process.Dir(t)
	for name, text := range map[string]string{
		"agl.yaml": `agent: {command: [sh, agent.sh], concurrency: 4}
data: {train: tasks.jsonl, val_share: 0.5}
prompts: {solver: solver.txt}
proxy: {models: [{name: writer, base_url: "` + writer.URL + `/v1", text_only: true}]}
algorithm: {apo: {gradient_model: writer, rounds: 1, budget: {tokens: 500}}}
`,
		"solver.txt":  "Answer {question}",
		"agent.sh":    `case "$AGL_PROMPT_SOLVER" in *number*) echo '{"reward": 1}';; *) echo '{"reward": 0}';; esac` + "\n",
		"tasks.jsonl": `{"n":` + strings.Join([]string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"}, "}\n{\"n\":") + "}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	train := exec.CommandContext(t.Context(), binary, "train")
	train.Dir = dir
	out, err := train.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "better prompts: +1.000") {
		t.Fatalf("agl train: %v\n%s", err, out)
	}
	if !regexp.MustCompile(`(?ms)^first prompts: mean reward 0\.000 .*^round  1 `).Match(out) {
		t.Errorf("the first prompts are not shown before the first round:\n%s", out)
	}
	// The models have no price, so no dollars are counted.
	if !regexp.MustCompile(`(?m)^calls that make prompts: \d+, \d+ tokens$`).Match(out) {
		t.Errorf("what the prompts cost is not said, or with a price:\n%s", out)
	}
	page, err := os.ReadFile(filepath.Join(dir, "runs", "agl", "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	_, pairs, _ := strings.Cut(string(page), "<h2>Conversations before and after</h2>")
	pairs, worst, _ := strings.Cut(pairs, "<h2>Worst tasks</h2>")
	shown := regexp.MustCompile(`<b>(before|after)</b> <code>ro-\w+</code> reward (\S+)</p>`).FindAllStringSubmatch(pairs, -1)
	if len(shown) < 2 {
		t.Fatalf("the page shows no pairs:\n%s", page)
	}
	for _, one := range shown {
		if one[2] != map[string]string{"before": "0", "after": "1"}[one[1]] {
			t.Errorf("%s the search the reward is %s", one[1], one[2])
		}
	}
	if strings.Contains(worst, "reward 0</p>") {
		t.Error("the worst rollouts are those of prompts that were not kept")
	}
}
