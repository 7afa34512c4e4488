package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/runner/process"
)

type runnerCommand struct {
	flags.Store
	flags.Log `set:"logLevel=info"`

	Concurrency int           `default:"1" help:"How many attempts run at once."`
	MaxRollouts int           `placeholder:"N" help:"Exit after this many rollouts. Default: when the queue is closed."`
	Timeout     time.Duration `placeholder:"DURATION" help:"Time limit of an attempt, besides the rollout's own."`
	Grace       time.Duration `default:"5s" help:"Time between SIGTERM and SIGKILL for an agent that must end."`

	DrainTimeout time.Duration `default:"10s" help:"On SIGTERM or SIGINT, let the agents that are running finish for at most this long. A second signal ends them at once."`

	Cwd        string      `xor:"cwd" type:"home" placeholder:"DIR" help:"Working directory of the agent. Default: the current one."`
	Workspace  bool        `xor:"cwd" help:"Give each attempt, or with --keepalive each process, a fresh working directory, which is removed afterwards."`
	Keep       bool        `help:"Do not remove the files of attempts."`
	Keepalive  string      `default:"none" enum:"none,stdio" help:"stdio keeps processes: each gets a task as a line of JSON and answers with a line. Default: ${default}."`
	Memory     flags.Size  `placeholder:"SIZE" help:"Bound each process's address space, such as 2GiB."`
	Output     flags.Size  `default:"1MiB" help:"How much of each output stream of an attempt is kept."`
	Env        []string    `sep:"none" placeholder:"NAME=VALUE" help:"One more variable for the agent; repeat it for several."`
	AllowEnv   []string    `sep:"none" placeholder:"NAME" help:"Let resources name this variable of the runner as the model's API key (env:NAME); repeat it for several."`
	AgentUser  string      `placeholder:"USER" help:"Run the agent as this user (a name, or UID:GID), who can read neither the runner's memory nor its files. The runner must be allowed to change users, as root is."`
	ProxyToken flags.Token `env:"AGL_PROXY_TOKEN" placeholder:"TOKEN" help:"The LLM proxy's token. Default: the store's."`
	Command    []string    `arg:"" passthrough:"partial" help:"The agent's program and its arguments, after --."`
}

func (c *runnerCommand) Validate() error {
	switch {
	case len(c.Command) > 0 && len(c.agent()) == 0:
		return errors.New("give the agent's program behind --, such as -- python agent.py")
	case c.Concurrency < 1 || c.Concurrency > runner.MaxWorkers:
		return fmt.Errorf("--concurrency=%d: must be from 1 to %d", c.Concurrency, runner.MaxWorkers)
	case c.MaxRollouts < 0:
		return fmt.Errorf("--max-rollouts=%d: must not be negative", c.MaxRollouts)
	case c.Timeout < 0:
		return fmt.Errorf("--timeout=%s: must not be negative", c.Timeout)
	case c.Grace <= 0:
		return fmt.Errorf("--grace=%s: must be positive", c.Grace)
	case c.DrainTimeout < 0:
		return fmt.Errorf("--drain-timeout=%s: must not be negative", c.DrainTimeout)
	}
	for _, v := range c.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return errors.New("--env: got a value without =, must be NAME=VALUE")
		}
	}
	return nil
}

func (c *runnerCommand) run(ctx context.Context, out *console.Console) (err error) {
	dir := cmp.Or(c.Cwd, ".")
	if found, err := os.Stat(dir); err != nil || !found.IsDir() {
		return fmt.Errorf("--cwd=%s: must be a folder that exists", dir)
	}
	log := c.Logger(out.Err)
	to, err := c.Config()
	if err != nil {
		return err
	}
	public, token := client.SplitURL(to.URL) // agents get the URL without the token
	if to.TokenFile == "" {
		to.Token = cmp.Or(to.Token, token)
	}
	to.URL, to.Logger = public, log
	store, err := client.New(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := takesSpans(ctx, store); err != nil {
		return c.Wrap(err)
	}
	cfg := process.Config{
		Command: c.agent(), Environ: os.Environ(), Env: c.Env, Dir: dir, Keep: c.Keep,
		StoreURL: public, AllowEnv: c.AllowEnv, Timeout: c.Timeout, GracePeriod: c.Grace, Hurry: execution.Forced(ctx),
		OutputBytes: int(c.Output), MemoryBytes: int64(c.Memory), Logger: log,
	}
	if c.Workspace {
		cfg.Dir = ""
	}
	cfg.Env = append(c.AgentEnv(), cfg.Env...)
	if c.AgentUser != "" {
		if err := become(&cfg, c.AgentUser); err != nil {
			return fmt.Errorf("--agent-user=%s: %w", c.AgentUser, err)
		}
	}
	if c.Keepalive == "stdio" {
		cfg.Keepalive = process.KeepaliveStdio
	}
	if cfg.SpanToken, err = client.SpanTokens(to); err != nil {
		return err
	}
	if cfg.Reaper, err = process.NewReaper(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cfg.Reaper.Close()) }()
	agent, err := process.New(cfg)
	if missing, ok := errors.AsType[*exec.Error](err); ok {
		return fmt.Errorf("the agent's program: %w", missing)
	}
	if err != nil {
		return err
	}
	defer agent.Close()
	agent.WarnCrowded(c.Concurrency)
	r, err := runner.New(runner.Config{
		HTTPClient: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: to.TLS}},
		Store:      store, Agent: agent, Workers: c.Concurrency, MaxRollouts: c.MaxRollouts, Logger: log,
		// The grace period of the program ends before that of the runner.
		GracePeriod: c.Grace + time.Second, ProxyToken: string(c.ProxyToken), CurrentProxyToken: store.Token,
	})
	if err != nil {
		return err
	}
	log.Info("runner takes rollouts", "store", secret.RedactURL(public), "concurrency", c.Concurrency, "agent", strings.Join(c.agent(), " "))
	running, end := c.draining(ctx, r, log)
	err = r.Run(running)
	end()
	if err != nil {
		if access.IsKey(to.Token) && agl.ErrorCode(err) == agl.CodeUnauthorized {
			err = fmt.Errorf("%w\nmake another key for this runner with agl key create NAME --scope runner, and start it again", err)
		}
		return c.Wrap(err)
	}
	why := "the store's queue is closed: no run is under way there, or it has ended"
	switch {
	case ctx.Err() != nil:
		why = "it was stopped"
	case c.MaxRollouts > 0:
		why = "the queue is closed, or --max-rollouts were taken"
	}
	log.Info("runner has ended", "because", why)
	return nil
}

// draining returns the context of agents, which ends DrainTimeout after ctx or at a second signal. When ctx ends, r takes no
// further rollouts. The caller calls end when r has ended.
func (c *runnerCommand) draining(ctx context.Context, r *runner.Runner, log *slog.Logger) (running context.Context, end func()) {
	running, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-running.Done():
			return
		case <-ctx.Done():
		}
		r.Drain()
		log.Info("draining: agents that are running may finish, a second signal ends them", "cause", context.Cause(ctx), "timeout", c.DrainTimeout)
		patience, done := execution.CleanupContext(ctx, c.DrainTimeout)
		defer done()
		select {
		case <-running.Done():
		case <-patience.Done():
			cancel(context.Cause(ctx))
		}
	})
	return running, func() { cancel(nil); waiting.Wait() }
}

// agent returns the program and its arguments, without the -- before them.
func (c *runnerCommand) agent() []string {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		return c.Command[1:]
	}
	return c.Command
}

// become makes the agent run as a user, with the user's home.
func become(cfg *process.Config, name string) error {
	id, group, numbers := strings.Cut(name, ":")
	home := os.TempDir()
	if !numbers {
		found, err := user.Lookup(name)
		if err != nil {
			return err
		}
		id, group, home = found.Uid, found.Gid, found.HomeDir
	}
	uid, err := strconv.ParseUint(id, 10, 32)
	gid, err2 := strconv.ParseUint(group, 10, 32)
	if err != nil || err2 != nil {
		return errors.New("must be the name of a user, or UID:GID")
	}
	cfg.User = &process.User{UID: uint32(uid), GID: uint32(gid)}
	cfg.Env = append([]string{"HOME=" + home, "USER=" + name, "LOGNAME=" + name}, cfg.Env...)
	return nil
}
