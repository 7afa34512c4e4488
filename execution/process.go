package execution

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/agl-go/agl/internal/procgroup"
)

// lifelineFD is the descriptor under which a child finds its lifeline: the
// first of exec.Cmd.ExtraFiles.
const lifelineFD = 3

// process is a child process in a process group of its own, so that a Ctrl-C of
// the terminal reaches it only through us.
type process struct {
	*side
	cmd      *exec.Cmd
	group    *procgroup.Group
	lifeline *os.File // held open while the child shall live
	allowed  []int

	mu   sync.Mutex
	sent []syscall.Signal
}

// processParams say what to start.
type processParams struct {
	name    string
	path    string
	args    []string
	env     []string // of the child, complete
	stdout  io.Writer
	stderr  io.Writer
	allowed []int // exit codes that are no failure, minus the signal's number for a signal
}

// serialWriter lets several children write to one writer.
type serialWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

// serialized leaves a file as it is: a child writes to it by itself.
func serialized(w io.Writer, mu *sync.Mutex) io.Writer {
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

// pipeGrace bounds how long a dead child's output is read on, in case a
// grandchild holds the pipe open.
const pipeGrace = 2 * time.Second

// startProcess starts a child as a side. The rungs are set by the caller.
func startProcess(p processParams, ended chan<- *side) (*process, error) {
	childEnd, ownEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("%s: make its lifeline: %w", p.name, err)
	}
	cmd := exec.Command(p.path, p.args...) //nolint:noctx // the program itself; its end is the ladder's work
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, p.stdout, p.stderr
	cmd.ExtraFiles = []*os.File{childEnd}
	cmd.WaitDelay = pipeGrace
	group := procgroup.New(cmd)
	err = cmd.Start()
	err = errors.Join(err, childEnd.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: start: %w", p.name, err), ownEnd.Close())
	}
	proc := &process{cmd: cmd, group: group, lifeline: ownEnd, allowed: p.allowed}
	proc.side = startFunc(fmt.Sprintf("%s (pid %d)", p.name, cmd.Process.Pid), ended, proc.wait)
	proc.killable = true
	return proc, nil
}

// wait reaps the child and judges how it ended.
func (p *process) wait() error {
	err := p.group.Wait()
	if closing := p.lifeline.Close(); closing != nil {
		return fmt.Errorf("close its lifeline: %w", closing)
	}
	state := p.cmd.ProcessState
	if state == nil {
		return fmt.Errorf("wait for it: %w", err)
	}
	if code := exitCode(state); !p.excused(code) {
		return fmt.Errorf("ended with %s, allowed exit codes are %v", state, p.allowed)
	}
	return nil
}

// excused reports whether a child may end so: with an allowed code, or by a
// signal that we sent. A kill is never excused: it means that the child did not
// answer.
func (p *process) excused(code int) bool {
	if slices.Contains(p.allowed, code) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sent {
		if s != syscall.SIGKILL && (code == -int(s) || code == 128+int(s)) {
			return true
		}
	}
	return false
}

// signal sends s to the child; a child that is gone is no error.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	p.sent = append(p.sent, s)
	p.mu.Unlock()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v: %w", s, err)
	}
	return nil
}

// kill ends the child and everything in its process group.
func (p *process) kill() error {
	err := p.signal(syscall.SIGKILL)
	p.group.Kill()
	return err
}

// lifelineEnv is what tells a child about its lifeline.
func lifelineEnv() string { return EnvLifeline + "=" + strconv.Itoa(lifelineFD) }

// errOrphaned is the cause of the end of a child whose parent has died.
var errOrphaned = errors.New("the process that started this one is gone")

// holdLifeline returns a context that ends when the parent of this process
// does. Should the process still be there after grace, its group is killed:
// nobody is left who could do it. release must be called at the end.
func holdLifeline(ctx context.Context, fd int, grace time.Duration) (held context.Context, release func(), err error) {
	pipe, err := openLifeline(fd)
	if err != nil {
		return nil, nil, err
	}
	held, cancel := context.WithCancelCause(ctx)
	done, quit := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		// The parent writes nothing: the read returns when the pipe ends, or when
		// release closes it.
		_, readErr := pipe.Read(make([]byte, 1))
		if errors.Is(readErr, os.ErrClosed) {
			return
		}
		cancel(errOrphaned)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			killOwnGroup()
		case <-quit:
		}
	}()
	return held, func() {
		close(quit)
		// The read end carries no data: closing it cannot lose any.
		_ = pipe.Close()
		<-done
		cancel(context.Canceled)
	}, nil
}
