//go:build page

package page

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/agl-go/agl"
)

// pythonRun makes a run with the Python package: its agent, started by agl runner, and its metrics.
func pythonRun(t *testing.T, store agl.Store, url string) (run string) {
	t.Helper()
	if err := store.OpenQueue(t.Context()); err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs("../../python/src")
	if err != nil {
		t.Fatal(err)
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+source, "PYTHONDONTWRITEBYTECODE=1", "AGL_STORE_URL="+url)
		cmd.WaitDelay = 10 * time.Second
		return cmd
	}
	// It ends after the rollouts of the run.
	runner := command(aglBinary, "runner", "--store", url, "--max-rollouts", "8", "--concurrency", "2", "--", "python3", "testdata/agent.py")
	said, err := os.Create(filepath.Join(t.TempDir(), "runner.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	runner.Stdout, runner.Stderr = said, said
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	out, learned := command("python3", "testdata/learn.py").CombinedOutput()
	if learned != nil {
		_ = runner.Process.Kill() // there may be nothing left for it to do
	}
	ran := runner.Wait()
	if learned != nil || ran != nil {
		text, _ := os.ReadFile(said.Name())
		t.Fatalf("the algorithm: %v\n%s\nthe runner: %v\n%s", learned, out, ran, text)
	}
	return "python:2"
}
