//go:build skyrl

package skyrl_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	steps           = 16
	checkpointEvery = 4
	killedAfter     = 6 // steps
)

// runFile trains on the server at a URL the model whose files are in a folder. All shapes are fixed, as the engine
// compiles for each new one: replies of at most 8 tokens, and batches of 32 sequences.
const runFile = `
agent: {command: [python3, %[1]q], keepalive: stdio, concurrency: 32, timeout: 2m}
data: {train: train.jsonl}
engine:
  tinker:
    base_url: %[2]s
    lora_rank: 8
    chat: {folder: %[3]q}
    encoding: auto
    retry_for: 5s
    capabilities: {engine: skyrl-jax, vocab: %[4]d, context: %[5]d}
algorithm:
  grpo: {steps: %[6]d, prompts_per_step: 2, group_size: 16, schedule: {peak: 1e-2, hold: 6, floor: 1e-3}, checkpoint_every: %[7]d}
seed: 1
`

// step is a line of metrics.jsonl.
type step struct {
	Step       int     `json:"step"`
	RewardMean float64 `json:"reward_mean"`
	Updates    int     `json:"updates"`
	LogprobGap struct {
		Max float64 `json:"max"`
	} `json:"logprob_gap"`
	Seconds struct {
		Total float64 `json:"total"`
	} `json:"seconds"`
}

// metrics reads the steps that a run has made; nil when there are none.
func metrics(t *testing.T, path string) []step {
	t.Helper()
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for line := range bytes.Lines(data) {
		var s step
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		steps = append(steps, s)
	}
	return steps
}

// program builds agl.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agl")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../cmd/agl").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// TestTraining trains by agl train, with an agent in a process, until the engine is killed, and goes on from the
// checkpoint with the engine that is started in its place.
func TestTraining(t *testing.T) {
	t.Parallel()
	agl, skyrl, dir := program(t), start(t), t.TempDir()
	agent, err := filepath.Abs("agent.py")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(runFile, agent, skyrl.url, environment(t, "AGL_SKYRL_MODEL"), vocab, contextLen, steps, checkpointEvery)
	for name, content := range map[string]string{
		"agl.yaml":    text,
		"train.jsonl": "{\"question\":\"shout\"}\n{\"question\":\"cry\"}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "runs", "agl")
	file := filepath.Join(out, "metrics.jsonl")

	// The first half, whose engine is killed.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	train := exec.CommandContext(ctx, agl, "train", filepath.Join(dir, "agl.yaml"))
	train.Cancel = func() error { return train.Process.Signal(syscall.SIGTERM) }
	train.WaitDelay = time.Minute
	var said bytes.Buffer
	train.Stdout, train.Stderr = &said, &said
	begun := time.Now()
	if err := train.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- train.Wait() }()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for len(metrics(t, file)) < killedAfter {
		select {
		case <-ticker.C:
		case err := <-ended:
			t.Fatalf("agl train ended before step %d: %v\n%s", killedAfter, err, said.String())
		}
	}
	before := metrics(t, file)
	skyrl.kill(t)
	if err := <-ended; err == nil {
		t.Errorf("agl train did not mind that its engine was killed:\n%s", said.String())
	}
	t.Logf("killed after step %d, %.0f s; agl train said:\n%s", len(before), time.Since(begun).Seconds(), tail(said.Bytes()))

	// The second half. What came after the checkpoint is made again.
	skyrl.restart(t)
	begun = time.Now()
	resume := exec.CommandContext(ctx, agl, "train", "--resume", out)
	resume.Cancel = func() error { return resume.Process.Signal(syscall.SIGTERM) }
	resume.WaitDelay = time.Minute
	output, err := resume.CombinedOutput()
	if err != nil {
		t.Fatalf("agl train --resume: %v\n%s", err, output)
	}
	t.Logf("resumed, %.0f s; agl train said:\n%s", time.Since(begun).Seconds(), tail(output))
	after := metrics(t, file)
	if len(after) != steps {
		t.Fatalf("%d steps in %s, want %d", len(after), file, steps)
	}
	saved := len(before) / checkpointEvery * checkpointEvery
	for i := range saved {
		if before[i] != after[i] {
			t.Errorf("step %d was made again, though there is a checkpoint of step %d", i+1, saved)
		}
	}
	if after[saved].Seconds == before[min(saved, len(before)-1)].Seconds && saved < len(before) {
		t.Errorf("step %d was not made again", saved+1)
	}
	for _, s := range after {
		t.Logf("step %2d  reward %.3f  log-probability gap %.1e  %.1f s", s.Step, s.RewardMean, s.LogprobGap.Max, s.Seconds.Total)
		if s.LogprobGap.Max > 1e-2 {
			t.Errorf("step %d: the sampler's log-probabilities are up to %v away from the trainer's", s.Step, s.LogprobGap.Max)
		}
	}
	if first := after[0].RewardMean; first > 0.3 {
		t.Errorf("mean reward %.3f at first, want at most 0.3", first)
	}
	if last := after[steps-1].RewardMean; last < 0.8 {
		t.Errorf("mean reward %.3f at last, want at least 0.8", last)
	}
}

// tail returns the end of a program's output.
func tail(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}
