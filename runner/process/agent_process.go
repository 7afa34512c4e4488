package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/procgroup"
)

// pipeGrace bounds how long the output of an ended process is read, in case something that survived it holds the pipe
// open.
const pipeGrace = 2 * time.Second

// agentProcess is one process of an agent, the leader of its own process group.
type agentProcess struct {
	reaper *Reaper
	log    *slog.Logger
	grace  time.Duration // between SIGTERM and SIGKILL
	hurry  <-chan struct{}
	cmd    *exec.Cmd
	group  *procgroup.Group
	mark   string
	stdin  *os.File // nil without
	stdout *os.File
	stderr *os.File

	streams sync.WaitGroup
	exited  chan struct{} // closed when the process has been waited for, and its group killed
	waitErr error
}

// launcher starts processes.
type launcher struct {
	argv    []string
	environ []string
	reaper  *Reaper
	log     *slog.Logger
	grace   time.Duration
	hurry   <-chan struct{}
	user    *User // nil is this process's
}

// start starts a process.
func (l *launcher) start(dir string, vars variables, stdin bool) (*agentProcess, error) {
	c := &agentProcess{reaper: l.reaper, log: l.log, grace: l.grace, hurry: l.hurry, mark: rand.Text(), exited: make(chan struct{})}
	c.cmd = exec.Command(l.argv[0], l.argv[1:]...) //nolint:noctx // await ends it, more gently than a context does
	c.cmd.Dir = dir
	c.cmd.Env = slices.Concat(l.environ, vars, []string{markVariable + "=" + c.mark})
	c.group = procgroup.New(c.cmd)
	if l.user != nil {
		become(c.cmd, *l.user)
	}
	if err := c.startPiped(stdin); err != nil {
		c.closePipes()
		return nil, &agl.OutcomeError{Kind: agl.OutcomeSetupError, Err: fmt.Errorf("start the agent: %w", err)}
	}
	c.streams.Go(func() {
		c.waitErr = c.group.Wait()
		close(c.exited)
	})
	return c, nil
}

// startPiped starts the process with pipes for its output, and for its input if stdin is set.
func (c *agentProcess) startPiped(stdin bool) (err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			err = errors.Join(err, f.Close())
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	var out, errs, in *os.File
	c.stdout, out = pipe()
	c.stderr, errs = pipe()
	if stdin {
		in, c.stdin = pipe()
	}
	theirs = slices.DeleteFunc([]*os.File{out, errs, in}, func(f *os.File) bool { return f == nil })
	if err != nil {
		return err
	}
	c.cmd.Stdout, c.cmd.Stderr = out, errs
	if stdin {
		c.cmd.Stdin = in
	}
	return c.reaper.start(c.cmd, c.mark)
}

// over reports whether the process has ended.
func (c *agentProcess) over() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

func (c *agentProcess) closePipes() {
	for _, f := range []*os.File{c.stdin, c.stdout, c.stderr} {
		if f != nil {
			_ = f.Close() // nothing can be lost: the process has ended
		}
	}
}

// copy reads a stream to its end in the background.
func (c *agentProcess) copy(from *os.File, to io.Writer) {
	c.streams.Go(func() {
		_, _ = io.Copy(to, from) // the rest after an error is lost
	})
}

// await waits until the process and its streams have ended. When ctx ends, the process is asked to end, and killed if
// it does not within its grace period.
func (c *agentProcess) await(ctx context.Context) {
	select {
	case <-c.exited:
	case <-ctx.Done():
		c.group.Terminate()
		c.spare()
	}
	c.end()
}

// spare waits until the process has ended, for its grace period at most.
func (c *agentProcess) spare() {
	timer := time.NewTimer(c.grace)
	defer timer.Stop()
	select {
	case <-c.exited:
	case <-timer.C:
	case <-c.hurry:
	}
}

// end kills the process, if it is still running, and everything that it has started.
func (c *agentProcess) end() {
	c.group.Kill()
	<-c.exited
	if left := c.reaper.sweep(c.mark, c.cmd.Process.Pid); left > 0 {
		c.log.Warn("processes that had left the group of their agent were killed", "processes", left)
	}
	deadline := time.Now().Add(pipeGrace)
	for _, f := range []*os.File{c.stdout, c.stderr} {
		_ = f.SetReadDeadline(deadline) // pipes support it on every system that has process groups
	}
	c.streams.Wait()
	c.closePipes()
}

// failure returns why an ended process failed; nil if it succeeded.
func (c *agentProcess) failure(stderr *output) error {
	if c.waitErr == nil {
		return nil
	}
	why := c.waitErr.Error()
	if state := c.cmd.ProcessState; state != nil {
		why = state.String()
	}
	if words := stderr.excerpt(); words != "" {
		return fmt.Errorf("the agent ended with %s: %s", why, words)
	}
	return fmt.Errorf("the agent ended with %s and wrote nothing to standard error", why)
}
