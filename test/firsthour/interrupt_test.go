package firsthour

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestInterrupt: Ctrl-C makes a checkpoint and says what a resumption repeats, and
// agents that are told to end leave no warnings.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), binary, "init", "--template", "shell", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const file = "agent: {command: [sh, -c, 'sh agent.sh; sleep 1'], concurrency: 4}\ndata: {train: train.jsonl}\n" +
		"engine: {policy: {context: 32, warm_start: {file: demos.jsonl, steps: 10}}}\nalgorithm: {grpo: {steps: 1000, prompts_per_step: 1, group_size: 4}}\n"
	if err := os.WriteFile(filepath.Join(dir, "long.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "train", "long.yaml")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "step    2/1000") {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("ended with %v, want exit code 130", err)
	}
	repeats := regexp.MustCompile(`resume with:   agl train --resume .*\nwhich continues after step (\d+) and repeats none of the steps done\n`).FindStringSubmatch(said.String())
	if repeats == nil {
		t.Fatalf("it does not say what a resumption repeats:\n%s", said.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "runs", "long", "checkpoints", fmt.Sprintf("checkpoint-%08s.json", repeats[1]))); err != nil {
		t.Error(err)
	}
	if strings.Contains(stderr.String(), "attempt failed") {
		t.Errorf("agents that were told to end are warnings:\n%s", stderr.String())
	}
}

// TestTwoSignals: a second signal ends agents that ignore the first, and leaves a line
// and not one for each runner.
func TestTwoSignals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"agl.yaml":    "agent: {command: [sh, -c, 'trap : TERM; echo begun >&2; touch begun; while :; do sleep 1; done'], concurrency: 16, grace: 60s}\ndata: {train: tasks.jsonl}\nalgorithm: {baseline: {}}\n",
		"tasks.jsonl": strings.Repeat("{}\n", 16),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), binary, "train", "agl.yaml")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		// The first line comes when the run begins, and the second with the first signal.
		if strings.HasPrefix(lines.Text(), "store: ") || strings.HasPrefix(lines.Text(), "stopping: ") {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("ended with %v, want exit code 130", err)
	}
	const few = 5 // there are three times as many runners
	if n := strings.Count(stderr.String(), "\n"); n > few {
		t.Errorf("two signals leave %d lines:\n%s", n, stderr.String())
	}
}
