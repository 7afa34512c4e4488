package execution

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agl-go/agl"
)

// ClientServer runs the algorithm and the runners as separate processes that
// meet at a store server. Its [Config] says which part this process plays.
//
// In the role both, this process starts the runner processes, which are the
// same program with the same arguments and a role of their own, and then runs
// the algorithm itself; or it runs everything itself (InProcess) and only
// shares the store. The store is managed, served here, or external, named by
// Config. Runners elsewhere, started by hand in the role runner, take part
// in the same queue and leave when training ends, as its closing tells them.
//
// A child process is stopped in steps, each with its timeout: the queue closes,
// interrupt, terminate, kill. It holds a pipe to its parent as a lifeline, so
// that even a parent that was killed leaves none behind.
type ClientServer struct {
	Config
	// Processes is how many runner processes share the runners; 0 is one for
	// each. A program in the role runner that was started by hand runs all its
	// runners in the one process.
	Processes int
	// Main is the side that this process plays itself in the role both:
	// RoleAlgorithm (the default), or RoleRunner to have the runners in the
	// foreground under a debugger.
	Main Role
	// InProcess makes the role both start no processes: the runners are goroutines
	// of this one. Processes, Main and Command have no meaning then.
	InProcess bool
	// Listener, if not nil, is where a managed store listens, instead of Host and
	// Port. Execute closes it.
	Listener net.Listener

	// GracefulTimeout is how long runners may take to finish what they had taken
	// once the queue is closed, and an algorithm to return. Default 10 s.
	GracefulTimeout time.Duration
	// InterruptTimeout is how long a child may take after SIGINT. Default 10 s.
	InterruptTimeout time.Duration
	// TerminateTimeout is how long a child may take after SIGTERM. Default 10 s.
	TerminateTimeout time.Duration
	// KillTimeout is how long the system may take after SIGKILL. Default 5 s.
	KillTimeout time.Duration
	// ConnectTimeout is how long a process waits for a store server that does
	// not answer yet. Default 30 s.
	ConnectTimeout time.Duration
	// StoreOutage is how long calls to a store elsewhere are repeated while it is
	// away, before they fail. Default 1 min; negative does not repeat.
	StoreOutage time.Duration
	// AllowedExitCodes of children are no failure; a signal counts as minus its
	// number. Default 0 and -15.
	AllowedExitCodes []int

	// Command starts a child. Default: this executable with its arguments.
	Command []string
	// Stdout and Stderr take the children's output. Default: this process's own.
	// A file is handed down to them, another writer gets one write at a time.
	Stdout, Stderr io.Writer
	// Listening, if not nil, hears the URL of a managed store before anything
	// else starts.
	Listening func(url string)
	// Logger hears what the strategy does; nil discards.
	Logger *slog.Logger
}

var _ Strategy = ClientServer{}

func (c ClientServer) withDefaults() ClientServer {
	c.Config = c.Config.withDefaults()
	if c.Listener != nil {
		if addr, ok := c.Listener.Addr().(*net.TCPAddr); ok {
			c.Host, c.Port = addr.IP.String(), addr.Port
		}
	}
	if c.Main == "" || c.InProcess {
		c.Main = RoleAlgorithm
	}
	c.GracefulTimeout = orDefault(c.GracefulTimeout, 10*time.Second)
	c.InterruptTimeout = orDefault(c.InterruptTimeout, 10*time.Second)
	c.TerminateTimeout = orDefault(c.TerminateTimeout, 10*time.Second)
	c.KillTimeout = orDefault(c.KillTimeout, 5*time.Second)
	c.ConnectTimeout = orDefault(c.ConnectTimeout, 30*time.Second)
	if c.AllowedExitCodes == nil {
		c.AllowedExitCodes = []int{0, -int(syscall.SIGTERM)}
	}
	if c.Stdout == nil {
		c.Stdout = os.Stdout
	}
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
	var mu sync.Mutex
	c.Stdout, c.Stderr = serialized(c.Stdout, &mu), serialized(c.Stderr, &mu)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c ClientServer) validate() error {
	if err := c.Config.validate(); err != nil {
		return err
	}
	if c.Main != RoleAlgorithm && c.Main != RoleRunner {
		return agl.Errorf(agl.CodeInvalid, "execution: main: got %q, must be algorithm or runner", c.Main)
	}
	if c.Processes < 0 {
		return agl.Errorf(agl.CodeInvalid, "execution: processes: got %d, must be at least 1", c.Processes)
	}
	return nil
}

// Execute plays this process's role. See [Strategy].
func (c ClientServer) Execute(ctx context.Context, parts Parts) error {
	c, parts = c.withDefaults(), parts.withDefaults()
	if err := errors.Join(c.validate(), parts.validate(c.Role)); err != nil {
		if c.Listener != nil {
			err = errors.Join(err, c.Listener.Close())
		}
		return err
	}
	if c.LifelineFD > 0 {
		held, release, err := holdLifeline(ctx, c.LifelineFD, c.GracefulTimeout)
		if err != nil {
			return err
		}
		defer release()
		ctx = held
	}
	switch {
	case c.Role == RoleRunner:
		return c.runRunners(ctx, parts)
	case c.ExternalStore:
		return c.withExternalStore(ctx, parts)
	default:
		return c.withManagedStore(ctx, parts)
	}
}

// runRunners plays the role runner: this process's share of the runner loops
// against a store elsewhere.
func (c ClientServer) runRunners(ctx context.Context, parts Parts) (err error) {
	store, closeStore, err := c.dial(ctx, c.storeURL())
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, closeStore) }()
	share := workers(parts.Runners, c.processes(parts), c.Process)
	ended := make(chan *side, len(share))
	sup := &supervisor{log: c.Logger, ended: ended}
	for _, worker := range share {
		sup.runners = append(sup.runners,
			startRunner(context.WithoutCancel(ctx), ended, parts, store, worker, c.GracefulTimeout))
	}
	return sup.run(ctx)
}

func (c ClientServer) withExternalStore(ctx context.Context, parts Parts) (err error) {
	store, closeStore, err := c.dial(ctx, c.storeURL())
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, closeStore) }()
	return c.lead(ctx, parts, store, c.storeURL(), nil)
}

func (c ClientServer) withManagedStore(ctx context.Context, parts Parts) (err error) {
	listener := c.Listener
	if listener == nil {
		if listener, err = listen(ctx, c.listenAddress()); err != nil {
			return err
		}
	}
	opened, err := parts.open(ctx)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = joinClose(err, opened.Close) }()
	server, err := c.serve(listener, opened)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	c.Logger.Info("store server listens", "url", server.url)
	if c.Listening != nil {
		c.Listening(server.url)
	}
	err = c.lead(ctx, parts, opened.Store, server.url, server)
	return errors.Join(err, server.shutdown(ctx, c.GracefulTimeout))
}

// lead plays the roles both and algorithm over a store that is there. server is
// nil when the store is external.
func (c ClientServer) lead(ctx context.Context, parts Parts, store agl.Store, url string, server *storeServer) (err error) {
	processes := c.processes(parts)
	ended := make(chan *side, parts.Runners+processes+2)
	sup := &supervisor{log: c.Logger, ended: ended}
	if server != nil {
		sup.guards = []*side{server.watch(ended)}
	}
	closeQueue := func() error { return nil }
	// The queue of a child's store is its parent's to open and close.
	if c.LifelineFD == 0 {
		if err := store.OpenQueue(ctx); err != nil {
			return fmt.Errorf("open the queue: %w", err)
		}
		closeQueue = queueCloser(ctx, store, c.GracefulTimeout)
	}
	teardown, err := c.setup(ctx, parts, store)
	if err != nil {
		return err
	}
	defer func() { teardown(&err) }()
	err = c.start(ctx, parts, store, url, sup, ended, closeQueue)
	if err == nil {
		err = sup.run(ctx)
	} else {
		err = errors.Join(append([]error{err}, sup.stop(true, forced(ctx))...)...)
	}
	err = closeAfter(err, closeQueue)
	if err == nil && (server != nil || parts.Setup != nil) {
		// Runners elsewhere have yet to report and to hear that the queue is closed.
		err = awaitWorkers(ctx, store, c.GracefulTimeout)
	}
	return err
}

// setup calls the parts' Setup where the algorithm runs.
func (c ClientServer) setup(ctx context.Context, parts Parts, store agl.Store) (teardown func(*error), err error) {
	if c.Role == RoleBoth && c.Main == RoleRunner {
		parts.Setup = nil
	}
	return parts.setup(ctx, store, c.GracefulTimeout)
}

// start starts the sides that this process is answerable for, the runners
// first.
func (c ClientServer) start(
	ctx context.Context, parts Parts, store agl.Store, url string, sup *supervisor, ended chan<- *side, closeQueue func() error,
) error {
	sideCtx := context.WithoutCancel(ctx)
	drain := rung{name: "close the queue", act: closeQueue, wait: c.GracefulTimeout}
	switch {
	case c.Role == RoleAlgorithm:
	case c.InProcess, c.Main == RoleRunner:
		for worker := range parts.Runners {
			sup.runners = append(sup.runners,
				startRunner(sideCtx, ended, parts, store, worker, c.InterruptTimeout, drain))
		}
		if c.InProcess || parts.Algorithm == nil {
			break
		}
		child, err := c.startChild("algorithm process", ended, url, RoleAlgorithm)
		if err != nil {
			return err
		}
		sup.algorithm = child
		return nil
	default:
		for n := range c.processes(parts) {
			child, err := c.startChild(fmt.Sprintf("runner process %d", n), ended, url, RoleRunner,
				EnvProcess+"="+strconv.Itoa(n))
			if err != nil {
				return err
			}
			child.rungs = append([]rung{drain}, child.rungs...)
			sup.runners = append(sup.runners, child)
		}
	}
	if parts.Algorithm != nil {
		sup.algorithm = startAlgorithm(sideCtx, ended, parts, store, c.GracefulTimeout)
	}
	return nil
}

// startChild starts this program again in the role given.
func (c ClientServer) startChild(name string, ended chan<- *side, url string, role Role, env ...string) (*side, error) {
	command, err := c.command()
	if err != nil {
		return nil, err
	}
	child, err := startProcess(processParams{
		name: name, path: command[0], args: command[1:],
		env:    append(c.childEnv(url, role), env...),
		stdout: c.Stdout, stderr: c.Stderr, allowed: c.AllowedExitCodes,
	}, ended)
	if err != nil {
		return nil, err
	}
	c.Logger.Debug("started", "side", child.name, "role", role)
	child.rungs = []rung{
		{name: "interrupt", act: func() error { return child.signal(syscall.SIGINT) }, wait: c.InterruptTimeout},
		{name: "terminate", act: func() error { return child.signal(syscall.SIGTERM) }, wait: c.TerminateTimeout},
		{name: "kill", act: child.kill, wait: c.KillTimeout},
	}
	return child.side, nil
}

func (c ClientServer) command() ([]string, error) {
	// A child that does not know its role would start children without end.
	if os.Getenv(EnvLifeline) != "" && c.LifelineFD == 0 {
		return nil, agl.Errorf(agl.CodeIllegalState,
			"execution: this process is a child of the same program and did not take its role: its main package must use execution.ConfigFromEnv")
	}
	if len(c.Command) > 0 {
		return c.Command, nil
	}
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this executable: %w", err)
	}
	return append([]string{path}, os.Args[1:]...), nil
}

// childEnv is this process's environment with the role variables of a child.
func (c ClientServer) childEnv(url string, role Role) []string {
	ours := []string{EnvRole, EnvServerHost, EnvServerPort, EnvManagedStore, EnvStoreURL, EnvToken, EnvProcess, EnvLifeline}
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(ours, name)
	})
	env = append(env, EnvRole+"="+string(role), EnvStoreURL+"="+url, lifelineEnv())
	if c.Token != "" {
		env = append(env, EnvToken+"="+c.Token)
	}
	return env
}

func (c ClientServer) processes(parts Parts) int {
	if c.Processes == 0 || c.Processes > parts.Runners {
		return parts.Runners
	}
	return c.Processes
}

// workers lists the runner loops of one of so many processes; all of them for a
// process that nobody numbered.
func workers(runners, processes int, process agl.Null[int]) []int {
	first, step := 0, 1
	if process.Valid {
		first, step = process.V, processes
	}
	var share []int
	for worker := first; worker < runners; worker += step {
		share = append(share, worker)
	}
	return share
}
