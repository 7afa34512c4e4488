package process

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
)

// Agent runs attempts in processes. It is safe for concurrent use: there are as
// many processes as there are calls of Run. Close it after use.
type Agent struct {
	cfg     Config
	argv    []string
	environ []string // what every process starts from
	pool    pool
}

var _ agl.Agent = (*Agent)(nil)

// New makes an agent. A program that is not there is agl.ErrInvalid.
func New(cfg Config) (*Agent, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	path, err := find(cfg.Command[0], cfg.Dir)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "process: Command: %w", err)
	}
	a := &Agent{cfg: cfg, argv: append([]string{path}, cfg.Command[1:]...), environ: cfg.inherited()}
	if cfg.MemoryBytes > 0 {
		// A limit must be there before the program is, which only a shell can do.
		const kib = 1 << 10
		a.argv = append([]string{"/bin/sh", "-c", fmt.Sprintf(`ulimit -v %d && exec "$@"`, max(cfg.MemoryBytes/kib, 1)), "sh"}, a.argv...)
	}
	return a, nil
}

// find makes a program's path independent of the working directory.
func find(program, dir string) (string, error) {
	if dir != "" && strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program) {
		program = filepath.Join(dir, program)
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// Close ends the processes that are kept. No call of Run is under way or follows.
func (a *Agent) Close() { a.pool.close() }

// errTimeLimit is the cause when Config.Timeout ends an attempt.
var errTimeLimit = errors.New("the agent's time limit is over")

// Run implements [agl.Agent]. When ctx ends the process is ended and the error
// is the cause; a time limit of the configuration is the outcome timeout, and
// what keeps the process from being started setup_error.
func (a *Agent) Run(ctx context.Context, task agl.Task) (agl.Result, error) {
	if a.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.cfg.Timeout, errTimeLimit)
		defer cancel()
	}
	f, err := a.prepare(task)
	if err != nil {
		return agl.Result{}, &agl.OutcomeError{Kind: agl.OutcomeSetupError, Err: fmt.Errorf("make the attempt's folder: %w", err)}
	}
	defer a.cleanUp(f)
	vars, err := a.attemptVariables(ctx, task, f)
	if err != nil {
		return agl.Result{}, &agl.OutcomeError{Kind: agl.OutcomeSetupError, Err: err}
	}
	var said result
	if a.cfg.Keepalive == KeepaliveStdio {
		said, err = a.serve(ctx, task, f, vars)
	} else {
		said, err = a.once(ctx, f, vars)
	}
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errTimeLimit):
		return agl.Result{}, &agl.OutcomeError{
			Kind: agl.OutcomeTimeout, Err: fmt.Errorf("%w: it did not end within %s", errTimeLimit, a.cfg.Timeout),
		}
	case ctx.Err() != nil:
		return agl.Result{}, context.Cause(ctx)
	case err != nil:
		return agl.Result{}, err
	case said.err != "":
		return agl.Result{}, fmt.Errorf("the agent reports: %s", said.err)
	}
	return agl.Result{Rewards: said.rewards}, nil
}

// once runs a process for one attempt.
func (a *Agent) once(ctx context.Context, f folder, vars variables) (result, error) {
	p, err := a.start(f.work, vars, false)
	if err != nil {
		return result{}, err
	}
	stdout, stderr := newOutput(a.cfg.OutputBytes), newOutput(a.cfg.OutputBytes)
	p.copy(p.stdout, stdout)
	p.copy(p.stderr, stderr)
	p.await(ctx, a.cfg.GracePeriod)
	if err := errors.Join(record(ctx, "stdout", stdout), record(ctx, "stderr", stderr)); err != nil {
		a.cfg.Logger.WarnContext(ctx, "the output of an agent was not recorded", "error", err)
	}
	if failure := p.failure(stderr); failure != nil || ctx.Err() != nil {
		return result{}, failure
	}
	said, err := readResult(f.result())
	if err == nil && !said.said {
		said, err = lastLine(stdout.end())
	}
	return said, err
}

// AttrStream names the output stream that a message span holds.
const AttrStream = "agentlightning.message.stream"

// record stores an output stream as a message of the attempt, which may have
// been cancelled meanwhile.
func record(ctx context.Context, stream string, o *output) error {
	text := o.text()
	if text == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, err := tracer.EmitMessage(ctx, text, tracer.WithAttributes(agl.Attr{Key: AttrStream, Value: stream}))
	return err
}
