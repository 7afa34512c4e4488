package inference

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
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

	output io.Closer     // of this process
	read   chan struct{} // closed when the output has ended

	mu   sync.Mutex
	last []string // the last lines of its output
}

// start starts the process.
func start(cfg Config) (*program, error) {
	cmd := exec.Command(cfg.Command[0], cfg.Command[1:]...) //nolint:noctx // end stops it in steps
	cmd.Dir, cmd.Env = cfg.Dir, cfg.Env
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = writing, writing
	p := &program{cmd: cmd, group: procgroup.New(cmd), output: reading, read: make(chan struct{})}
	err = cmd.Start()
	_ = writing.Close() // the process has its own
	if err != nil {
		return nil, errors.Join(agl.Errorf(agl.CodeInvalid, "start the inference server: %w", err), reading.Close())
	}
	go func() {
		defer close(p.read)
		if err := p.copy(reading, cfg.Output); err != nil {
			cfg.Logger.Warn("the output of the inference server is not kept", "error", err)
		}
	}()
	go func() { _ = p.group.Wait() }() // state has how it ended
	return p, nil
}

const (
	maxLine   = 4 << 10 // bytes
	keptLines = 20
)

// copy passes the output on until it ends, and keeps the last lines.
func (p *program) copy(from *os.File, to io.Writer) (failed error) {
	lines := bufio.NewReaderSize(from, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if failed == nil {
			_, failed = to.Write(line)
		}
		if text := strings.TrimSpace(string(line)); text != "" {
			p.mu.Lock()
			p.last = append(p.last, text)
			p.last = p.last[max(0, len(p.last)-keptLines):]
			p.mu.Unlock()
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return failed
		}
	}
}

// end ends the process and its group, and returns when both are gone and their output is
// read.
func (p *program) end(grace time.Duration) {
	p.group.End(grace)
	// A process that left the group may hold the pipe open.
	const pipeGrace = 2 * time.Second
	rest := time.AfterFunc(pipeGrace, func() { _ = p.output.Close() })
	defer rest.Stop()
	<-p.read
	_ = p.output.Close() // read to its end
}

// state says how the process ended. It is called once its group is gone.
func (p *program) state() string {
	if p.cmd.ProcessState == nil {
		return "an unknown state"
	}
	return p.cmd.ProcessState.String()
}

// said describes the last lines of the output, for an error. It is called after end.
func (p *program) said() string {
	p.mu.Lock()
	lines := slices.Clone(p.last)
	p.mu.Unlock()
	if len(lines) == 0 {
		return "; it has written nothing"
	}
	return fmt.Sprintf("; its last lines:\n    %s", strings.Join(lines, "\n    "))
}
