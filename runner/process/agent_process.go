package process

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
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

	removeDir func() // removes the working directory of a process that is kept

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
	p := &agentProcess{reaper: l.reaper, log: l.log, grace: l.grace, hurry: l.hurry, mark: rand.Text(), exited: make(chan struct{})}
	p.cmd = exec.Command(l.argv[0], l.argv[1:]...) //nolint:noctx // await ends it, more gently than a context does
	p.cmd.Dir = dir
	p.cmd.Env = slices.Concat(l.environ, vars, []string{markVariable + "=" + p.mark})
	p.group = procgroup.New(p.cmd)
	if l.user != nil {
		runAs(p.cmd, *l.user)
	}
	if err := p.startPiped(stdin); err != nil {
		p.closePipes()
		return nil, &agl.OutcomeError{Kind: agl.OutcomeSetupError, Err: fmt.Errorf("start the agent: %w%s", err, l.explain(err))}
	}
	p.streams.Go(func() {
		p.waitErr = p.group.Wait()
		close(p.exited)
	})
	return p, nil
}

// explain says what is wrong with a program that exists and cannot be started; empty if that is not known.
func (l *launcher) explain(err error) string {
	if errors.Is(err, syscall.E2BIG) {
		return "; its arguments and variables are too long for this system: with --keepalive stdio, the variables of an attempt are in the agent's input"
	}
	f, opened := os.Open(l.argv[0])
	if opened != nil {
		return ""
	}
	defer f.Close()
	first := make([]byte, 128) // what Linux reads of the line, or less
	n, _ := f.Read(first)
	line, _, _ := bytes.Cut(first[:n], []byte("\n"))
	script := bytes.HasPrefix(line, []byte("#!"))
	switch {
	case errors.Is(err, fs.ErrNotExist) && script:
		return fmt.Sprintf("; there is no program as its first line says, %q", line)
	case errors.Is(err, syscall.ENOEXEC) && !script:
		return "; it is no program for this machine, and no script whose first line begins with #!"
	}
	return ""
}

// startPiped starts the process with pipes for its output, and for its input if stdin is set.
func (p *agentProcess) startPiped(stdin bool) (err error) {
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
	p.stdout, out = pipe()
	p.stderr, errs = pipe()
	if stdin {
		in, p.stdin = pipe()
	}
	theirs = slices.DeleteFunc([]*os.File{out, errs, in}, func(f *os.File) bool { return f == nil })
	if err != nil {
		return err
	}
	p.cmd.Stdout, p.cmd.Stderr = out, errs
	if stdin {
		p.cmd.Stdin = in
	}
	return p.reaper.start(p.cmd, p.mark)
}

func (p *agentProcess) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			_ = f.Close() // nothing can be lost: the process has ended
		}
	}
}

// copy reads a stream to its end in the background.
func (p *agentProcess) copy(from *os.File, to io.Writer) {
	p.streams.Go(func() {
		_, _ = io.Copy(to, &stream{pipe: from}) // the rest after an error is lost
	})
}

// stream reads a pipe to its end, or after its deadline what it holds already: a machine that is busy or was suspended may
// have read nothing until then.
type stream struct {
	pipe *os.File
	rest io.Reader // nil before the deadline
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) {
	if s.rest == nil {
		n, err := s.pipe.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		_ = s.pipe.SetReadDeadline(time.Time{}) // as in end
		s.rest = io.LimitReader(s.pipe, int64(unread(s.pipe)))
	}
	return s.rest.Read(b)
}

// await waits until the process and its streams have ended. When ctx ends, the process is asked to end, and killed if
// it does not within its grace period.
func (p *agentProcess) await(ctx context.Context) {
	select {
	case <-p.exited:
	case <-ctx.Done():
		p.group.Terminate()
		p.waitGrace()
	}
	p.end()
}

// waitGrace waits until the process has ended, for its grace period at most.
func (p *agentProcess) waitGrace() {
	select {
	case <-p.exited:
	case <-time.After(p.grace):
	case <-p.hurry:
	}
}

// end kills the process, if it is still running, and everything that it has started.
func (p *agentProcess) end() {
	p.group.Kill()
	<-p.exited
	if left := p.reaper.sweep(p.mark, p.cmd.Process.Pid); left > 0 {
		p.log.Warn("processes that had left the group of their agent were killed", "processes", left)
	}
	deadline := time.Now().Add(pipeGrace)
	for _, f := range []*os.File{p.stdout, p.stderr} {
		_ = f.SetReadDeadline(deadline) // pipes support it on every system that has process groups
	}
	p.streams.Wait()
	p.closePipes()
	if p.removeDir != nil {
		p.removeDir()
	}
}

// failure returns why an ended process failed; nil if it succeeded. The error has the hint, which may be empty, behind the exit status.
func (p *agentProcess) failure(stderr *output, hint string) error {
	if p.waitErr == nil {
		return nil
	}
	why := p.waitErr.Error()
	if state := p.cmd.ProcessState; state != nil {
		why = state.String()
	}
	why += hint
	if text := stderr.excerpt(); text != "" {
		return fmt.Errorf("the agent ended with %s: %s", why, text)
	}
	return fmt.Errorf("the agent ended with %s and wrote nothing to standard error", why)
}
