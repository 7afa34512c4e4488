package execution

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/agl-go/agl/internal/procgroup"
)

// child is a child process in a process group of its own, so that a Ctrl-C in the terminal reaches it only through
// this process.
type child struct {
	*part
	cmd      *exec.Cmd
	group    *procgroup.Group
	lifeline *os.File // held open as long as the child may live
	allowed  []int

	mu   sync.Mutex
	sent []syscall.Signal
}

// childParams say what to start.
type childParams struct {
	name           string
	command        []string // the program and its arguments
	env            []string // all of the child's environment
	stdout, stderr io.Writer
	allowed        []int // exit codes that are not failures; minus the number for a signal
}

// serialWriter serializes the writes of several children to one writer.
type serialWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

// serialized returns w, made safe for several children, or otherwise if w is nil. A file is returned as it is:
// children write to it directly.
func serialized(w io.Writer, otherwise *os.File, mu *sync.Mutex) io.Writer {
	if w == nil {
		return otherwise
	}
	if _, isFile := w.(*os.File); isFile {
		return w
	}
	return serialWriter{mu, w}
}

func (s serialWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// pipeGrace bounds how long a dead child's output is still read, in case a
// grandchild holds the pipe open.
const pipeGrace = 2 * time.Second

// startChild starts a child as a part. The caller sets the steps that stop it.
func startChild(p childParams, ended chan<- *part) (*child, error) {
	childEnd, ownEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("%s: make its lifeline: %w", p.name, err)
	}
	cmd := exec.Command(p.command[0], p.command[1:]...) //nolint:noctx // the child is stopped in steps
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, p.stdout, p.stderr
	cmd.ExtraFiles = []*os.File{childEnd}
	cmd.WaitDelay = pipeGrace
	group := procgroup.New(cmd)
	if err := errors.Join(cmd.Start(), childEnd.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: start: %w", p.name, err), ownEnd.Close())
	}
	c := &child{cmd: cmd, group: group, lifeline: ownEnd, allowed: p.allowed}
	c.part = start(fmt.Sprintf("%s (pid %d)", p.name, cmd.Process.Pid), ended, c.wait)
	c.killable = true
	return c, nil
}

// wait reaps the child and returns an error if it ended badly.
func (c *child) wait() error {
	err := c.group.Wait()
	if closing := c.lifeline.Close(); closing != nil {
		return fmt.Errorf("close its lifeline: %w", closing)
	}
	state := c.cmd.ProcessState
	if state == nil {
		return fmt.Errorf("wait for it: %w", err)
	}
	if code := exitCode(state); !c.mayEndWith(code) {
		return fmt.Errorf("ended with %s, allowed exit codes are %v", state, c.allowed)
	}
	return nil
}

// mayEndWith reports whether an exit code is no failure: an allowed one, or that of a signal that the child was sent.
// SIGKILL is never excused: it means that the child did not react.
func (c *child) mayEndWith(code int) bool {
	if slices.Contains(c.allowed, code) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.sent, func(s syscall.Signal) bool {
		return s != syscall.SIGKILL && (code == -int(s) || code == 128+int(s))
	})
}

// signal sends s to the child. A child that is gone is not an error.
func (c *child) signal(s syscall.Signal) error {
	c.mu.Lock()
	c.sent = append(c.sent, s)
	c.mu.Unlock()
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v: %w", s, err)
	}
	return nil
}

// kill ends the child and everything in its process group.
func (c *child) kill() error {
	err := c.signal(syscall.SIGKILL)
	c.group.Kill()
	return err
}
