package extract

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/procgroup"
)

// Program is a program that reads a session as JSON from its standard input and writes JSON to its standard output.
type Program struct {
	Command []string // the program and its arguments
	Dir     string   // its working directory, and the base of a relative path to it; empty is that of this process
	// Timeout bounds a run; 0 is 30 s. The program and its children are then killed.
	Timeout time.Duration
}

const (
	defaultTimeout = 30 * time.Second
	maxOutput      = 1 << 20 // in bytes
)

// Check refuses invalid settings and a missing program with CodeInvalid.
func (p *Program) Check() error {
	if len(p.Command) == 0 || p.Command[0] == "" {
		return agl.Errorf(agl.CodeInvalid, "command: empty, must be a program with its arguments")
	}
	program := p.Command[0]
	if strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program) {
		abs, err := filepath.Abs(filepath.Join(p.Dir, program)) // Join alone makes of ./check a name to look for in PATH
		if err != nil {
			return agl.Errorf(agl.CodeInvalid, "command: %w", err)
		}
		program = abs
	}
	_, err := exec.LookPath(program)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return agl.Errorf(agl.CodeInvalid, "command: there is no program %s", program)
	case err != nil:
		return agl.Errorf(agl.CodeInvalid, "command: %w", err)
	}
	return nil
}

// Run runs the program for a session. It returns the elements of the list that the program wrote, a single other value, or
// nothing if the program wrote nothing or null.
func (p *Program) Run(ctx context.Context, s *Session) ([]jsontext.Value, error) {
	input, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	output, err := p.run(ctx, input)
	if err != nil {
		return nil, err
	}
	output = bytes.TrimSpace(output)
	value := jsontext.Value(output)
	switch {
	case len(output) == 0:
		return nil, nil
	case !value.IsValid():
		return nil, fmt.Errorf("the program %s wrote %.200q, must be JSON", p.Command[0], output)
	case value.Kind() == 'n':
		return nil, nil
	case value.Kind() != '[':
		return []jsontext.Value{value}, nil
	}
	var list []jsontext.Value
	err = json.Unmarshal(value, &list)
	return list, err
}

func (p *Program) run(ctx context.Context, input []byte) ([]byte, error) {
	limit := cmp.Or(p.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the program %s took longer than its %s", p.Command[0], limit))
	defer cancel()
	cmd := exec.Command(p.Command[0], p.Command[1:]...) //nolint:noctx // its whole group is killed
	stdout, stderr := &bounded{most: maxOutput}, &bounded{most: 4 << 10, tail: true}
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Dir, bytes.NewReader(input), stdout, stderr
	cmd.WaitDelay = time.Second // for children that keep the output open
	group := procgroup.New(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the program: %w", err)
	}
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killed)
		group.Kill()
	})
	err := group.Wait()
	if !stop() {
		<-killed
		return nil, context.Cause(ctx)
	}
	switch {
	case stdout.over:
		return nil, fmt.Errorf("the program %s wrote more than %d bytes", p.Command[0], maxOutput)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		why := ""
		if last := strings.TrimSpace(stderr.kept.String()); last != "" {
			why = ": " + strings.ToValidUTF8(last[strings.LastIndexByte(last, '\n')+1:], "\uFFFD")
		}
		return nil, fmt.Errorf("the program %s ended with %w%s", p.Command[0], err, why)
	}
	return stdout.kept.Bytes(), nil
}

// bounded is a writer that keeps the first bytes, or the last ones if tail is set.
type bounded struct {
	kept bytes.Buffer
	most int
	tail bool
	over bool
}

// Write implements io.Writer. It accepts everything, so that a full pipe never stops the program.
func (b *bounded) Write(p []byte) (int, error) {
	n := len(p)
	b.over = b.over || b.kept.Len()+n > b.most
	if b.tail {
		p = p[max(0, n-b.most):]
		b.kept.Next(max(0, b.kept.Len()+len(p)-b.most))
	} else {
		p = p[:min(n, b.most-b.kept.Len())]
	}
	b.kept.Write(p)
	return n, nil
}
