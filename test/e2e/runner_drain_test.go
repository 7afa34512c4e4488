//go:build unix

package e2e

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// fifo makes a pipe with a name.
func fifo(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRunnerDrains: agents that run when agl runner is told to end may finish, for as long as --drain-timeout says and no second
// signal comes. It takes no further rollouts.
func TestRunnerDrains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, timeout string
		finish, again bool
		status        agl.RolloutStatus
	}{
		{"the agent finishes", "1h", true, false, agl.RolloutSucceeded},
		{"a second signal", "1h", false, true, agl.RolloutFailed},
		{"no time", "0", false, false, agl.RolloutFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, url := startStore(t)
			s := connect(t, url)
			if _, err := s.AddResources(t.Context(), agl.AddResourcesParams{}); err != nil {
				t.Fatal(err)
			}
			task := agl.EnqueueRollout{Input: jsontext.Value("1")}
			rollouts, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{task, task}})
			if err != nil {
				t.Fatal(err)
			}
			begun, finish := fifo(t, "begun"), fifo(t, "finish")
			agent := `echo >"$0"; read line <"$1"; echo "$line" >"$AGL_RESULT_FILE"`
			runner := startMerged(t, aglBinary, []string{"runner", "--store", url, "--drain-timeout", c.timeout, "--", "/bin/sh", "-c", agent, begun, finish}, []string{"AGL_TOKEN=" + token})
			pipe, err := os.Open(begun) // waits for the agent
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(pipe); err != nil {
				t.Fatal(err)
			}
			if err := pipe.Close(); err != nil {
				t.Fatal(err)
			}
			signal(t, runner.cmd.Process.Pid, syscall.SIGTERM)
			runner.awaitLine("draining")
			switch {
			case c.finish:
				if err := os.WriteFile(finish, []byte("0.5\n"), 0); err != nil {
					t.Fatal(err)
				}
			case c.again:
				signal(t, runner.cmd.Process.Pid, syscall.SIGTERM)
			}
			if exit := runner.end(); exit != 0 {
				t.Errorf("exit code %d, want 0", exit)
			}
			got := statuses(t, s)
			if first := got[rollouts[0].RolloutID]; first != c.status {
				t.Errorf("the rollout that ran is %s, want %s", first, c.status)
			}
			if second := got[rollouts[1].RolloutID]; second != agl.RolloutQueuing {
				t.Errorf("the rollout that nobody took is %s", second)
			}
		})
	}
}
