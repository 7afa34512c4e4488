package execution

import (
	"cmp"
	"context"
	"crypto/tls"
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
	"github.com/agl-go/agl/rest/client"
)

// ClientServer runs the algorithm and the runners as separate processes that meet at a store server. Its [Config]
// says what this process runs.
//
// In the role both, this process starts the runner processes and runs the algorithm itself. The runner processes are
// the same program with the same arguments and another role. With InProcess it runs everything itself, and only
// shares the store. The store is either managed, that is, served by this process, or external, as Config says.
// Runners that were started elsewhere in the role runner serve the same queue, and exit when it is closed at the end
// of the training.
//
// A child process is stopped in steps, each with its timeout: close the queue, interrupt, terminate, kill. A child
// holds one end of a pipe to its parent, its lifeline, so that even a parent that was killed leaves no child behind.
type ClientServer struct {
	Config
	// Processes is the number of runner processes that share the runners; 0 is one for each runner. A program that
	// was started by hand in the role runner runs all its runners in one process.
	Processes int
	// Main is what this process itself runs in the role both: RoleAlgorithm (the default), or RoleRunner to have the
	// runners in the foreground under a debugger.
	Main Role
	// InProcess makes the role both start no processes: the runners are goroutines of this process. Processes, Main
	// and Command are ignored then.
	InProcess bool
	// Listener, if not nil, is where a managed store listens, instead of Host and
	// Port. Execute closes it.
	Listener net.Listener

	// GracefulTimeout is how long runners may take to finish their rollouts once the queue is closed or their process
	// is told to end, and how long an algorithm may take to return. Default 10 s.
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
	// StoreOutage is how long calls to an external store are retried while it is unavailable, before they fail.
	// Default 1 min; negative does not retry.
	StoreOutage time.Duration
	// TLS configures which certificates clients of an external store trust; nil trusts the CAs of the system.
	TLS *tls.Config
	// AllowedExitCodes are exit codes of children that are not failures; a signal counts as minus its number. Default
	// 0 and -15.
	AllowedExitCodes []int

	// Command starts a child. Default: this executable with its arguments.
	Command []string
	// Stdout and Stderr receive the children's output. Default: those of this process. Children inherit a file;
	// another writer gets one write at a time.
	Stdout, Stderr io.Writer
	// Listening, if not nil, is called with the URL of a managed store before anything else starts.
	Listening func(url string)
	// Logger logs what the strategy does; nil discards.
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
	c.GracefulTimeout = cmp.Or(c.GracefulTimeout, 10*time.Second)
	c.InterruptTimeout = cmp.Or(c.InterruptTimeout, 10*time.Second)
	c.TerminateTimeout = cmp.Or(c.TerminateTimeout, 10*time.Second)
	c.KillTimeout = cmp.Or(c.KillTimeout, 5*time.Second)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 30*time.Second)
	if c.AllowedExitCodes == nil {
		c.AllowedExitCodes = []int{0, -int(syscall.SIGTERM)}
	}
	var mu sync.Mutex
	c.Stdout, c.Stderr = serialized(c.Stdout, os.Stdout, &mu), serialized(c.Stderr, os.Stderr, &mu)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
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

// Placement implements [Strategy].
func (c ClientServer) Placement() Placement { return Placement{Role: c.Role} }

// Execute does what the role of this process says. See [Strategy].
func (c ClientServer) Execute(ctx context.Context, parts Parts) error {
	c, parts = c.withDefaults(), parts.withDefaults()
	if c.Listener != nil {
		defer c.Listener.Close() // a server that was started has closed it
	}
	if err := errors.Join(c.validate(), parts.validate(c.Role)); err != nil {
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

// runRunners implements the role runner: this process's share of the runner loops, with a store elsewhere.
func (c ClientServer) runRunners(ctx context.Context, parts Parts) (err error) {
	store, closeStore, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, closeStore) }()
	var before []stopStep
	if c.LifelineFD == 0 { // else the process that started this one has waited for the rollouts
		draining := make(chan struct{})
		drain := sync.OnceFunc(func() { close(draining) })
		store = &drainedStore{store, draining}
		before = []stopStep{{name: "drain", do: func() error { drain(); return nil }, wait: c.GracefulTimeout}}
	}
	r := newRun(parts, store, 0, c.Logger)
	for _, worker := range shareOf(parts.Runners, c.processes(parts), c.Process) {
		r.startRunner(ctx, worker, c.GracefulTimeout, before...)
	}
	return r.supervise(ctx)
}

func (c ClientServer) withExternalStore(ctx context.Context, parts Parts) (err error) {
	store, closeStore, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, closeStore) }()
	return c.lead(ctx, parts, store, c.storeURL(), nil)
}

func (c ClientServer) withManagedStore(ctx context.Context, parts Parts) (err error) {
	listener := c.Listener
	if listener == nil {
		if listener, err = listenTCP(ctx, c.listenAddress()); err != nil {
			return err
		}
	}
	opened, err := parts.open(ctx)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = joinClose(err, opened.Close) }()
	opened.Store = withQueue(opened.Store)
	server, err := serveStore(listener, opened, c.Token, c.Logger)
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

// lead implements the roles both and algorithm, with a store that other processes reach at url. server is nil if the
// store is external.
func (c ClientServer) lead(ctx context.Context, parts Parts, store agl.Store, url string, server *storeServer) error {
	if c.Role == RoleBoth && c.Main == RoleRunner {
		parts.Setup = nil // the algorithm's process does it
	}
	if parts.StoreURL != nil {
		parts.StoreURL(url)
	}
	r := newRun(parts, store, c.processes(parts)+1, c.Logger)
	// If the store or the service of Setup is part of this process, workers elsewhere may still need it when the run
	// has ended.
	afterwards := func() error { return nil }
	if server != nil || parts.Setup != nil {
		served, err := newServedWorkers(ctx, store)
		if err != nil {
			return err
		}
		afterwards = func() error { return served.await(ctx, c.GracefulTimeout) }
	}
	if server != nil {
		r.required = []*part{start("store server", r.ended, server.http.Err)}
	}
	open := func() error {
		if c.LifelineFD > 0 {
			return nil // the parent of a child opens and closes the queue
		}
		return r.openQueue(ctx, c.GracefulTimeout)
	}
	return r.lead(ctx, c.GracefulTimeout, open, func() error { return c.start(ctx, r, url) }, afterwards)
}

// start starts the parts that this process is responsible for, the runners first.
func (c ClientServer) start(ctx context.Context, r *run, url string) error {
	drain := stopStep{name: "close the queue", do: r.closeQueue, wait: c.GracefulTimeout}
	switch {
	case c.Role == RoleAlgorithm:
	case c.InProcess, c.Main == RoleRunner:
		for worker := range r.parts.Runners {
			r.startRunner(ctx, worker, c.InterruptTimeout, drain)
		}
		if c.InProcess || r.parts.Algorithm == nil {
			break
		}
		child, err := c.startChild("algorithm process", r.ended, url, RoleAlgorithm)
		if err != nil {
			return err
		}
		r.algorithm = child
		return nil
	default:
		for n := range c.processes(r.parts) {
			child, err := c.startChild(fmt.Sprintf("runner process %d", n), r.ended, url, RoleRunner, EnvProcess+"="+strconv.Itoa(n))
			if err != nil {
				return err
			}
			child.steps = append([]stopStep{drain}, child.steps...)
			r.runners = append(r.runners, child)
		}
	}
	r.startAlgorithm(ctx, c.GracefulTimeout)
	return nil
}

// dial returns a client of the configured store server, once it answers.
func (c ClientServer) dial(ctx context.Context) (store agl.Store, closeStore func() error, err error) {
	return dialStore(ctx, client.Config{URL: c.storeURL(), Token: c.Token, TLS: c.TLS, RetryTimeout: c.StoreOutage, Logger: c.Logger}, c.ConnectTimeout)
}

// startChild starts this program again in another role.
func (c ClientServer) startChild(name string, ended chan<- *part, url string, role Role, env ...string) (*part, error) {
	command, err := c.command()
	if err != nil {
		return nil, err
	}
	child, err := startChild(childParams{
		name: name, command: command, env: append(c.childEnv(url, role), env...),
		stdout: c.Stdout, stderr: c.Stderr, allowed: c.AllowedExitCodes,
	}, ended)
	if err != nil {
		return nil, err
	}
	c.Logger.Debug("started", "part", child.name, "role", role)
	child.steps = []stopStep{
		{name: "interrupt", do: func() error { return child.signal(syscall.SIGINT) }, wait: c.InterruptTimeout},
		{name: "terminate", do: func() error { return child.signal(syscall.SIGTERM) }, wait: c.TerminateTimeout},
		{name: "kill", do: child.kill, wait: c.KillTimeout},
	}
	return child.part, nil
}

func (c ClientServer) command() ([]string, error) {
	// A child that ignores its role would start children of its own, forever.
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

// childEnv returns this process's environment with the role variables of a child.
func (c ClientServer) childEnv(url string, role Role) []string {
	ours := []string{EnvRole, EnvServerHost, EnvServerPort, EnvManagedStore, EnvStoreURL, EnvToken, EnvProcess, EnvLifeline}
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(ours, name)
	})
	env = append(env, EnvRole+"="+string(role), EnvStoreURL+"="+url, EnvLifeline+"="+strconv.Itoa(lifelineFD))
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

// shareOf lists the runner loops of one of several processes, or all of them for a process without a number.
func shareOf(runners, processes int, process agl.Null[int]) []int {
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
