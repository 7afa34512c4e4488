package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/procgroup"
)

// markVariable tells to which of our processes something that it has started
// belongs.
const markVariable = "AGL_PROCESS_ID"

// pipeGrace bounds how long the output of a process that has ended is read on,
// in case something that survived it holds the pipe open.
const pipeGrace = 2 * time.Second

// process is one process of an agent, the leader of a group of its own.
type process struct {
	agent  *Agent
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

// start starts the program.
func (a *Agent) start(dir string, vars variables, stdin bool) (*process, error) {
	p := &process{agent: a, mark: rand.Text(), exited: make(chan struct{})}
	p.cmd = exec.Command(a.argv[0], a.argv[1:]...) //nolint:noctx // its end is await's work, which knows a gentler way
	p.cmd.Dir = dir
	p.cmd.Env = append(append(append(make([]string, 0, len(a.environ)+len(vars)+1), a.environ...), vars...), markVariable+"="+p.mark)
	p.group = procgroup.New(p.cmd)
	var theirs []*os.File
	pipe := func(input bool) (*os.File, *os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		if input {
			theirs = append(theirs, r)
			return w, r, nil
		}
		theirs = append(theirs, w)
		return r, w, nil
	}
	var err error
	var out, errs, in *os.File
	if p.stdout, out, err = pipe(false); err == nil {
		p.stderr, errs, err = pipe(false)
	}
	if err == nil && stdin {
		p.stdin, in, err = pipe(true)
	}
	if err == nil {
		p.cmd.Stdout, p.cmd.Stderr = out, errs
		if stdin {
			p.cmd.Stdin = in
		}
		err = a.cfg.Reaper.start(p.cmd, p.mark)
	}
	for _, f := range theirs {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		p.closePipes()
		return nil, &agl.OutcomeError{Kind: agl.OutcomeSetupError, Err: fmt.Errorf("start the agent: %w", err)}
	}
	p.streams.Go(func() {
		p.waitErr = p.group.Wait()
		close(p.exited)
	})
	return p, nil
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *process) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			_ = f.Close() // the read ends carry nothing that could be lost, the write end has no reader any more
		}
	}
}

// copy reads a stream to its end in the background.
func (p *process) copy(from *os.File, to io.Writer) {
	p.streams.Go(func() {
		// What a broken pipe or the deadline cuts off is cut off.
		_, _ = io.Copy(to, from)
	})
}

// await waits until the process has ended, which it must when ctx does, ends
// what it leaves behind and waits for its streams.
func (p *process) await(ctx context.Context, grace time.Duration) {
	select {
	case <-p.exited:
	case <-ctx.Done():
		p.group.Terminate()
		timer := time.NewTimer(grace)
		select {
		case <-p.exited:
		case <-timer.C:
		}
		timer.Stop()
	}
	p.end()
}

// end kills the process, if it is still there, with all that belongs to it.
func (p *process) end() {
	p.group.Kill()
	<-p.exited
	if left := p.agent.cfg.Reaper.sweep(p.mark); left > 0 {
		p.agent.cfg.Logger.Warn("an agent's processes had left its group and were ended", "processes", left)
	}
	deadline := time.Now().Add(pipeGrace)
	for _, f := range []*os.File{p.stdout, p.stderr} {
		_ = f.SetReadDeadline(deadline) // pipes take deadlines on every system that has groups
	}
	p.streams.Wait()
	p.closePipes()
}

// failure says why a process that has ended counts as failed; nil when it does
// not.
func (p *process) failure(stderr *output) error {
	if p.waitErr == nil {
		return nil
	}
	why := p.waitErr.Error()
	if state := p.cmd.ProcessState; state != nil {
		why = state.String()
	}
	if words := stderr.lastWords(); words != "" {
		return fmt.Errorf("the agent ended with %s: %s", why, words)
	}
	return fmt.Errorf("the agent ended with %s and wrote nothing to standard error", why)
}
