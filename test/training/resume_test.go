package training

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/examples/calculator/recipe"
)

// program builds the example once for the test.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "calculator")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../examples/calculator")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// killAt starts the program, kills it with SIGKILL when it prints a line with
// the prefix, and returns the lines until then.
func killAt(t *testing.T, prefix, path string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
		lines = append(lines, scanner.Text())
		if strings.HasPrefix(scanner.Text(), prefix) {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the program ended by itself: %v\n%s\n%s", err, strings.Join(lines, "\n"), stderr.String())
	}
	return lines
}

// stepLine returns the line that a run printed for a step, without the speed and the time.
func stepLine(t *testing.T, lines []string, step int) string {
	t.Helper()
	prefix := fmt.Sprintf("step %4d/", step)
	for _, line := range lines {
		if strings.HasPrefix(line, prefix) {
			results, _, _ := strings.Cut(line, "  masked")
			return results
		}
	}
	t.Fatalf("no line %q… in\n%s", prefix, strings.Join(lines, "\n"))
	return ""
}

// A run that is killed in the warm start and again in training must continue from its last
// checkpoint, repeat the later steps exactly, and end as well trained as an undisturbed one.
func TestKilledTrainingResumes(t *testing.T) {
	t.Parallel()
	path := program(t)
	out := filepath.Join(t.TempDir(), "out")
	summaryFile := filepath.Join(t.TempDir(), "summary.json")
	args := []string{"--seed", "7", "--out", out}

	killAt(t, "warm start  700", path, args...)
	before := killAt(t, "step   33/", path, args...)
	if first := before[0]; !strings.HasPrefix(first, "warm start  700") {
		t.Errorf("the second start begins with %q, want the warm start after its checkpoint at 600", first)
	}

	last := exec.CommandContext(t.Context(), path, append(args, "--summary", summaryFile)...)
	output, err := last.CombinedOutput()
	if err != nil {
		t.Fatalf("the third start: %v\n%s", err, output)
	}
	after := strings.Split(string(output), "\n")
	if after[0] != fmt.Sprintf("resumes after step 25 of %d", recipe.Steps) {
		t.Errorf("the third start begins with %q", after[0])
	}
	for step := 26; step <= 32; step++ {
		if a, b := stepLine(t, before, step), stepLine(t, after, step); a != b {
			t.Errorf("step %d was\n%s\nbefore the kill and is\n%s\nafter it", step, a, b)
		}
	}
	doc, err := os.ReadFile(summaryFile)
	if err != nil {
		t.Fatal(err)
	}
	var summary struct {
		Steps  int
		Before struct{ CI95 [2]float64 }
		After  struct {
			PassRate float64 `json:"pass_rate"`
			CI95     [2]float64
		}
	}
	if err := json.Unmarshal(doc, &summary, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if summary.Steps != recipe.Steps || summary.After.PassRate < 0.9 || summary.After.CI95[0] <= summary.Before.CI95[1] {
		t.Errorf("summary: %s", doc)
	}
}
