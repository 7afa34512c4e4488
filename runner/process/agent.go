package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
)

// Agent runs attempts in processes. It is safe for concurrent use: there are as many processes as calls of Run. The
// caller closes it.
type Agent struct {
	cfg      Config
	launcher launcher
	pool     pool
}

var _ agl.Agent = (*Agent)(nil)

// New returns an agent. A program that does not exist is agl.ErrInvalid, and so is a Config.TempDir that cannot be written to.
func New(cfg Config) (*Agent, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	path, err := find(cfg.Command[0], cfg.Dir)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "process: Command: %w", err)
	}
	if err := cfg.checkTempDir(); err != nil {
		return nil, err
	}
	argv := append([]string{path}, cfg.Command[1:]...)
	if cfg.MemoryBytes > 0 {
		// The limit must be set before the program starts, which takes a shell.
		const kib = 1 << 10
		argv = append([]string{"/bin/sh", "-c", fmt.Sprintf(`ulimit -v %d && exec "$@"`, max(cfg.MemoryBytes/kib, 1)), "sh"}, argv...)
	}
	return &Agent{cfg: cfg, launcher: launcher{
		argv: argv, environ: cfg.inherited(), reaper: cfg.Reaper, log: cfg.Logger, grace: cfg.GracePeriod, hurry: cfg.Hurry, user: cfg.User,
	}}, nil
}

// WarnCrowded logs that more processes are to run at once than the cores are likely to serve in time.
func (a *Agent) WarnCrowded(concurrency int) {
	const perCore = 256 // far more than programs that only wait for a model need
	if cores := runtime.GOMAXPROCS(0); concurrency > perCore*cores {
		a.cfg.Logger.Warn("so many programs at once may all be too slow for their time limit; if attempts time out, lower the concurrency", "concurrency", concurrency, "cores", cores)
	}
}

// find returns the absolute path of a program.
func find(program, dir string) (string, error) {
	if dir != "" && strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program) {
		abs, err := filepath.Abs(filepath.Join(dir, program)) // Join alone makes of ./agent a name to look for in PATH
		if err != nil {
			return "", err
		}
		program = abs
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// Close ends the kept processes. No call of Run may be in progress or follow.
func (a *Agent) Close() { a.pool.close() }

// errTimeLimit is the cause when Config.Timeout ends an attempt.
var errTimeLimit = errors.New("the agent's time limit has passed")

// Run implements [agl.Agent]. When ctx ends, it ends the process and returns the cause of ctx. The outcome is timeout
// after Config.Timeout, and setup_error if the process cannot be started.
func (a *Agent) Run(ctx context.Context, task agl.Task) (agl.Result, error) {
	if a.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.cfg.Timeout, errTimeLimit)
		defer cancel()
	}
	f, err := a.cfg.makeFolder(task)
	if err != nil {
		return agl.Result{}, &agl.OutcomeError{Kind: agl.OutcomeSetupError, Err: fmt.Errorf("make the attempt's folder: %w", err)}
	}
	defer a.cfg.removeFolder(f)
	vars, err := a.cfg.attemptVariables(ctx, task, f)
	if err != nil {
		return agl.Result{}, &agl.OutcomeError{Kind: agl.OutcomeSetupError, Err: err}
	}
	var reported result
	if a.cfg.Keepalive == KeepaliveStdio {
		reported, err = a.serve(ctx, task, f, vars)
	} else {
		reported, err = a.once(ctx, f, vars)
	}
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errTimeLimit):
		missing := "end"
		if a.cfg.Keepalive == KeepaliveStdio {
			missing = "reply with a line of JSON"
		}
		return agl.Result{}, &agl.OutcomeError{
			Kind: agl.OutcomeTimeout, Err: fmt.Errorf("%w: it did not %s within %s%s", errTimeLimit, missing, a.cfg.Timeout, reported.instead),
		}
	case ctx.Err() != nil:
		return agl.Result{}, context.Cause(ctx)
	case err != nil:
		return agl.Result{}, err
	case reported.err != "":
		return agl.Result{}, fmt.Errorf("the agent reports: %s", reported.err)
	}
	return agl.Result{Rewards: reported.rewards}, nil
}

// once runs a process for one attempt.
func (a *Agent) once(ctx context.Context, f attemptFolder, vars variables) (result, error) {
	p, err := a.launcher.start(f.work, vars, false)
	if err != nil {
		return result{}, err
	}
	stdout, stderr := newOutput(a.cfg.OutputBytes), newOutput(a.cfg.OutputBytes)
	p.copy(p.stdout, stdout)
	p.copy(p.stderr, stderr)
	p.await(ctx)
	a.record(ctx, stdout, stderr)
	if failure := p.failure(stderr, vars.longTaskHint()); failure != nil || ctx.Err() != nil {
		return result{}, failure
	}
	reported, err := a.cfg.readResult(f)
	if err == nil && !reported.given {
		reported, err = printedResult(stdout)
	}
	return reported, err
}

// serve passes the task of an attempt to a kept process.
func (a *Agent) serve(ctx context.Context, task agl.Task, f attemptFolder, vars variables) (result, error) {
	line, err := stdioLine(task, vars)
	if err != nil {
		return result{}, err
	}
	t := &turn{
		attemptID: task.Attempt.AttemptID, reply: make(chan stdioReply, 1),
		stdout: newOutput(a.cfg.OutputBytes), stderr: newOutput(a.cfg.OutputBytes),
	}
	var reply []byte
	for again := true; again; again = errors.Is(err, errLeft) { // no task is lost by a program that does a number of them
		k := a.pool.take()
		if k == nil {
			if k, err = a.startKept(); err != nil {
				return result{}, err
			}
			a.pool.watch(k)
		}
		reply, err = k.serve(ctx, line, t)
		if err == nil && !a.pool.put(k, a.cfg.MaxIdle) {
			k.retire()
		}
	}
	a.record(ctx, t.stdout, t.stderr)
	switch {
	case err != nil || reply == nil:
		return result{instead: t.instead()}, err
	case ctx.Err() != nil && !bytes.HasSuffix(reply, []byte("\n")): // it was read when the process was ended
		return result{instead: fmt.Sprintf("; it printed %.200q without the end of the line", reply)}, nil
	}
	reported, err := parseLine(trim(reply))
	if err != nil {
		return result{}, agl.Errorf(agl.CodeInvalid, "reply of the agent: %w", err)
	}
	if !reported.given {
		reported, err = a.cfg.readResult(f)
	}
	return reported, err
}

// AttrStream names the output stream that a message span holds.
const AttrStream = "agentlightning.message.stream"

// record stores the output streams as messages of the attempt, even if it was cancelled meanwhile.
func (a *Agent) record(ctx context.Context, stdout, stderr *output) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, stream := range []struct {
		name string
		text string
	}{{"stdout", stdout.text()}, {"stderr", stderr.text()}} {
		if stream.text == "" {
			continue
		}
		_, err := tracer.EmitMessage(ctx, stream.text, tracer.WithAttributes(agl.Attr{Key: AttrStream, Value: stream.name}))
		if err != nil {
			a.cfg.Logger.WarnContext(ctx, "the output of an agent was not recorded", "stream", stream.name, "error", err)
		}
	}
}
