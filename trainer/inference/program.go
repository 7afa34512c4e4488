package inference

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/procgroup"
)

// program is one process of the server, the leader of a group of its own.
type program struct {
	cmd   *exec.Cmd
	group *procgroup.Group
	cfg   Config

	mu     sync.Mutex
	last   []byte // the end of its output
	failed bool   // cfg.Output did not take all of it
}

// pipeGrace bounds how long the output of an ended process is read: one that left the group may hold the pipe open.
const pipeGrace = 2 * time.Second

// start starts the process.
func start(cfg Config) (*program, error) {
	p := &program{cmd: exec.Command(cfg.Command[0], cfg.Command[1:]...), cfg: cfg} //nolint:noctx // it is stopped in steps
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = cfg.Dir, cfg.Env, p, p, pipeGrace
	p.group = procgroup.New(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "start the inference server: %w", err)
	}
	go func() { _ = p.group.Wait() }() // state has how it ended
	return p, nil
}

// keptBytes and keptLines bound what is kept of the output.
const (
	keptBytes = 80 << 10
	keptLines = 20
)

// Write passes the output on, and keeps its end. It accepts everything, so that a full pipe never stops the program.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.failed {
		if _, err := p.cfg.Output.Write(b); err != nil {
			p.failed = true
			p.cfg.Logger.Warn("the output of the inference server is not kept", "error", err)
		}
	}
	p.last = append(p.last, b...)
	p.last = p.last[max(0, len(p.last)-keptBytes):]
	return len(b), nil
}

// state says how the process ended. It is called once its group is gone.
func (p *program) state() string {
	if p.cmd.ProcessState == nil {
		return "an unknown state"
	}
	return p.cmd.ProcessState.String()
}

// said describes the last lines of the output, for an error. It is called once its group is gone.
func (p *program) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines []string
	for line := range strings.Lines(string(p.last)) {
		if text := strings.TrimSpace(line); text != "" {
			lines = append(lines, text)
		}
	}
	if len(lines) == 0 {
		return "; it has written nothing"
	}
	return fmt.Sprintf("; its last lines:\n    %s", strings.Join(lines[max(0, len(lines)-keptLines):], "\n    "))
}
