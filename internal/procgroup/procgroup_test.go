//go:build unix

package procgroup

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// start runs a shell script in a group of its own. Its output ends when nothing of
// the group is left.
func start(t *testing.T, script string) (*Group, *bufio.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	group := New(cmd)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	cmd.Stdout = w
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	return group, bufio.NewReader(r)
}

func TestWaitEndsTheGroup(t *testing.T) {
	t.Parallel()
	group, out := start(t, `sleep 86400 & exit 3`)
	var exit *exec.ExitError
	if err := group.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("wait returned %v", err)
	}
	if _, err := out.ReadByte(); !errors.Is(err, io.EOF) { // not before the sleep is gone
		t.Error(err)
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]func(*Group){"terminate": (*Group).Terminate, "kill": (*Group).Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group, out := start(t, `sleep 86400 & echo; wait`)
			if _, err := out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			signal(group)
			if err := group.Wait(); err == nil {
				t.Error("the leader has ended well")
			}
		})
	}
}

// End asks first, and kills a leader that does not end.
func TestEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		grace  time.Duration
	}{
		"ends":    {`trap 'exit 0' TERM; echo; while :; do sleep 0.01; done`, time.Hour},
		"ignores": {`trap '' TERM; echo; while :; do sleep 0.01; done`, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group, out := start(t, test.script)
			if _, err := out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- group.Wait() }()
			group.End(test.grace)
			<-group.Gone()
			if err := <-ended; (err == nil) != (name == "ends") {
				t.Errorf("wait returned %v", err)
			}
		})
	}
}

// The number of a group whose leader was reaped may be another's by now.
func TestReapedGroupIsNotSignalled(t *testing.T) {
	t.Parallel()
	over, _ := start(t, `exit 0`)
	if err := over.Wait(); err != nil {
		t.Fatal(err)
	}
	other, out := start(t, `trap 'echo hit' TERM; echo; while :; do sleep 0.01; done`)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	over.cmd.Process.Pid = other.cmd.Process.Pid // as if the system had given the number away
	over.Terminate()
	over.Kill()
	if err := syscall.Kill(other.cmd.Process.Pid, 0); err != nil {
		t.Errorf("the other group was hit: %v", err)
	}
	other.Kill()
	if rest, _ := out.ReadString('\n'); rest != "" {
		t.Errorf("the other group was hit: %q", rest)
	}
	if err := other.Wait(); err == nil {
		t.Error("the other group has ended by itself")
	}
}
