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

	"github.com/agl-go/agl/test/process"
)

// TestInterrupt checks that Ctrl-C makes a checkpoint and prints what a resumption repeats, and
// that agents which are told to end leave no warnings.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	dir := process.Dir(t)
	if out, err := exec.CommandContext(t.Context(), binary, "init", "--template", "shell", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const file = "agent: {command: [sh, -c, 'sh agent.sh; sleep 1'], concurrency: 4}\ndata: {train: train.jsonl}\n" +
		"engine: {policy: {context: 32, warm_start: {file: demos.jsonl, steps: 10}}}\nalgorithm: {grpo: {steps: 1000, prompts_per_step: 1, group_size: 4}}\n"
	if err := os.WriteFile(filepath.Join(dir, "long.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	said, stderr := interrupt(t, dir, "step    2/1000", "train", "long.yaml")
	repeats := regexp.MustCompile(`resume with:   \S*agl\S* train --resume .*\nwhich continues after step (\d+) and repeats none of the steps done\n`).FindStringSubmatch(said)
	if repeats == nil {
		t.Fatalf("it does not say what a resumption repeats:\n%s", said)
	}
	if _, err := os.Stat(filepath.Join(dir, "runs", "long", "checkpoints", fmt.Sprintf("checkpoint-%08s.json", repeats[1]))); err != nil {
		t.Error(err)
	}
	if strings.Contains(stderr, "attempt failed") {
		t.Errorf("agents that were told to end are warnings:\n%s", stderr)
	}
}

// TestTwoSignals checks that a second signal ends agents that ignore the first one, and that
// this prints one line and not one for each runner.
func TestTwoSignals(t *testing.T) {
	t.Parallel()
	dir := process.Dir(t)
	for name, text := range map[string]string{
		"agl.yaml":    "agent: {command: [sh, -c, 'trap : TERM; echo begun >&2; touch begun; while :; do sleep 1; done'], concurrency: 16, grace: 60s}\ndata: {train: tasks.jsonl}\nalgorithm: {baseline: {}}\n",
		"tasks.jsonl": strings.Repeat("{}\n", 16),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The first line comes when the run begins, and the second with the first signal.
	_, stderr := interrupt(t, dir, "store: |stopping: ", "train", "agl.yaml")
	const few = 5 // there are three times as many runners
	if n := strings.Count(stderr, "\n"); n > few {
		t.Errorf("two signals leave %d lines:\n%s", n, stderr)
	}
}

// interrupt runs agl and sends SIGINT for each line of its output that begins with one of the
// texts. It returns the output, and fails unless the exit code is that of an interrupted run.
func interrupt(t *testing.T, dir, texts string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = dir
	var said, failures bytes.Buffer
	cmd.Stderr = &failures
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	when := regexp.MustCompile("^(" + texts + ")")
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if when.MatchString(lines.Text()) {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("ended with %v, want exit code 130", err)
	}
	return said.String(), failures.String()
}
