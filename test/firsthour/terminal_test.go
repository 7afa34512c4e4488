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

	"github.com/agl-go/agl/test/process"
)

// pane is a tmux terminal that shows the progress of a run.
type pane struct {
	*testing.T

	socket string
	output *os.File // what the terminal gets, a pipe
}

func (p pane) tmux(args ...string) string {
	p.Helper()
	out, err := exec.CommandContext(p.Context(), "tmux", append([]string{"-S", p.socket}, args...)...).CombinedOutput()
	if err != nil {
		p.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// await waits until nothing is wrong with the screen. Flags of capture-pane may
// add what has scrolled away.
func (p pane) await(wrong func(screen string) string, flags ...string) {
	p.Helper()
	if err := p.output.SetReadDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		p.Fatal(err)
	}
	changes := make([]byte, 1<<16)
	for {
		screen := p.tmux(append([]string{"capture-pane", "-p", "-t", "run"}, flags...)...)
		what := wrong(screen)
		if what == "" {
			return
		}
		if _, err := p.output.Read(changes); err != nil {
			p.Fatalf("%v, and the screen %s:\n%s", err, what, screen)
		}
	}
}

// fifo makes a named pipe in a folder. It is open for both ends, so that neither waits for
// the other.
func fifo(t *testing.T, dir, name string) *os.File {
	t.Helper()
	path := filepath.Join(dir, name)
	if out, err := exec.CommandContext(t.Context(), "mkfifo", path).CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v\n%s", err, out)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// TestTerminal: the live display fits terminals of any size, leaves no row behind when
// it is redrawn or the terminal resized, neither on the screen nor in what has scrolled
// away, and its last frame agrees with the result.
func TestTerminal(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed")
	}
	for _, size := range [][2]int{{40, 10}, {80, 24}, {200, 50}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			t.Parallel()
			dir := process.Dir(t)
			for name, text := range map[string]string{
				"agl.yaml": "agent: {command: [sh, agent.sh], concurrency: 1}\ndata: {train: tasks.jsonl}\nalgorithm: {baseline: {}}\n",
				// The agent reads a line, so that the test decides when it ends.
				"agent.sh":    "read -r line <go; echo '{\"reward\": 0.5}'\n",
				"tasks.jsonl": "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			gate := fifo(t, dir, "go")
			let := func() {
				t.Helper()
				if _, err := gate.WriteString("\n"); err != nil {
					t.Fatal(err)
				}
			}
			p := pane{t, filepath.Join(dir, "tmux"), fifo(t, dir, "output")}
			p.tmux("-f", "/dev/null", "new-session", "-d", "-s", "run", "-x", fmt.Sprint(size[0]), "-y", fmt.Sprint(size[1]), "-c", dir, "sh")
			p.tmux("pipe-pane", "-O", "-t", "run", "cat >"+p.output.Name())
			t.Cleanup(func() {
				// The context of the test has ended.
				_ = exec.CommandContext(context.WithoutCancel(t.Context()), "tmux", "-S", p.socket, "kill-server").Run()
			})
			p.tmux("send-keys", "-t", "run", binary+" train agl.yaml; echo ended with $?", "Enter")
			let()
			p.await(progress("1/3"))
			for _, part := range []int{7, 6, 5} { // as a window that is drawn smaller
				p.tmux("resize-window", "-t", "run", "-x", fmt.Sprint(size[0]*part/8+5), "-y", fmt.Sprint(size[1]*part/8+1))
			}
			let()
			p.await(progress("2/3"))
			p.tmux("resize-window", "-t", "run", "-x", fmt.Sprint(size[0]), "-y", fmt.Sprint(size[1]))
			let()
			p.await(func(screen string) string {
				if what := rowsOnce(screen); what != "" {
					return what
				}
				for _, want := range []string{"3/3", "train: 3 tasks, mean reward 0.500", "ended with 0"} {
					if !strings.Contains(strings.ReplaceAll(screen, "\n", ""), want) {
						return "lacks " + want
					}
				}
				return ""
			}, "-S", "-")
		})
	}
}

// progress wants a text on the screen, and each row of the display once. In the middle of a
// redraw it is not so; a row that is left behind stays.
func progress(text string) func(screen string) string {
	return func(screen string) string {
		if !strings.Contains(screen, text) {
			return "lacks " + text
		}
		return rowsOnce(screen)
	}
}

func rowsOnce(screen string) string {
	for _, label := range []string{"tasks", "reward"} {
		if n := strings.Count("\n"+screen, "\n"+label+" "); n != 1 {
			return fmt.Sprintf("has the row %q %d times", label, n)
		}
	}
	return ""
}
