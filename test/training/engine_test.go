package training

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

// results runs the program to its end and returns its summary without the time.
func results(t *testing.T, path string, args ...string) (summary map[string]any, lines []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "summary.json")
	output, err := exec.CommandContext(t.Context(), path, append(args, "--summary", file)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(doc, &summary); err != nil {
		t.Fatal(err)
	}
	delete(summary, "seconds")
	return summary, strings.Split(string(output), "\n")
}

// A model in a process of its own must learn over HTTP exactly what an embedded one learns, even
// if both processes end in the middle and start again. The engine's process must not outlive a
// program that is killed.
func TestEngineInAnotherProcess(t *testing.T) {
	t.Parallel()
	path := program(t)
	args := []string{"--seed", "7", "--steps", "4"}
	want, here := results(t, path, args...)

	args = append(args, "--engine", "http", "--out", filepath.Join(t.TempDir(), "out"))
	killAt(t, "warm start  300", path, args...) // returns when nobody has its standard error any more
	got, elsewhere := results(t, path, args...)
	if !strings.HasPrefix(elsewhere[0], "warm start  300") {
		t.Errorf("the second start begins with %q, want the warm start after its checkpoint at 200", elsewhere[0])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("here (-) and in another process (+):\n%s", diff)
	}
	for step := range 4 {
		if a, b := stepLine(t, here, step+1), stepLine(t, elsewhere, step+1); a != b {
			t.Errorf("here:\n%s\nin another process:\n%s", a, b)
		}
	}
	if t.Failed() {
		fmt.Fprintln(t.Output(), strings.Join(elsewhere, "\n"))
	}
}
