package firsthour

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pane is a terminal of tmux in which a run shows its progress.
type pane struct {
	*testing.T

	socket string
}

func (p pane) tmux(args ...string) string {
	p.Helper()
	out, err := exec.CommandContext(p.Context(), "tmux", append([]string{"-S", p.socket}, args...)...).CombinedOutput()
	if err != nil {
		p.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// await returns the screen when it holds a text. Flags of capture-pane may add what has
// scrolled away.
func (p pane) await(text string, flags ...string) string {
	p.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		screen := p.tmux(append([]string{"capture-pane", "-p", "-t", "run"}, flags...)...)
		if strings.Contains(screen, text) {
			return screen
		}
		if time.Now().After(deadline) {
			p.Fatalf("the screen never showed %q:\n%s", text, screen)
		}
		time.Sleep(50 * time.Millisecond) // the terminal is another program: there is nothing to wait for
	}
}

// TestTerminal: the live display fits terminals of any size, leaves no row behind when
// it is redrawn or the terminal resized, and its last frame agrees with the result.
func TestTerminal(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed")
	}
	for _, size := range [][2]int{{40, 10}, {80, 24}, {200, 50}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{
				"agl.yaml": "agent: {command: [sh, agent.sh], concurrency: 1}\ndata: {train: tasks.jsonl}\nalgorithm: {baseline: {}}\n",
				"agent.sh": "while [ ! -e go$(echo $AGL_TASK | tr -dc 0-9) ]; do sleep 0.05; done; echo '{\"reward\": 0.5}'\n",
				// The agent waits for a file of its task, so that the test decides when it ends.
				"tasks.jsonl": "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			let := func(n int) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("go", n)), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p := pane{t, filepath.Join(dir, "tmux")}
			p.tmux("-f", "/dev/null", "new-session", "-d", "-s", "run", "-x", fmt.Sprint(size[0]), "-y", fmt.Sprint(size[1]), "-c", dir, "sh")
			t.Cleanup(func() {
				// The context of the test has ended.
				_ = exec.CommandContext(context.WithoutCancel(t.Context()), "tmux", "-S", p.socket, "kill-server").Run()
			})
			p.tmux("send-keys", "-t", "run", binary+" train agl.yaml; echo ended with $?", "Enter")
			let(1)
			once(t, p.await("1/3"))
			p.tmux("resize-window", "-t", "run", "-x", fmt.Sprint(size[0]/2+10), "-y", fmt.Sprint(size[1]/2+2))
			let(2)
			once(t, p.await("2/3"))
			p.tmux("resize-window", "-t", "run", "-x", fmt.Sprint(size[0]), "-y", fmt.Sprint(size[1]))
			let(3)
			last := p.await("ended with 0", "-S", "-")
			for _, want := range []string{"3/3", "train: 3 tasks, mean reward 0.500"} {
				if !strings.Contains(strings.ReplaceAll(last, "\n", ""), want) {
					t.Errorf("the last screen lacks %q:\n%s", want, last)
				}
			}
		})
	}
}

// once wants each row of the display on the screen once.
func once(t *testing.T, screen string) {
	t.Helper()
	for _, label := range []string{"tasks", "reward"} {
		n := 0
		for line := range strings.Lines(screen) {
			if strings.HasPrefix(line, label+" ") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("the row %q is on the screen %d times:\n%s", label, n, screen)
		}
	}
}
