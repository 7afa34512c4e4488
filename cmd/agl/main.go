// Command agl trains agents by a run file; serves a store and the LLM proxy;
// runs agents; shows what a store holds, and looks after its database.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"sync"

	"github.com/alecthomas/kong"
	"github.com/charmbracelet/colorprofile"

	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/store/backend"
)

// exitUsage is the exit code of a wrong command line; the others are those of
// execution.ExitCode.
const exitUsage = 2

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program but for the end of the process.
func run(args []string, stdout, stderr io.Writer) (code int) {
	ctx, stop := execution.NotifyContext(context.Background())
	defer stop()
	m := &Main{Stdout: stdout, Stderr: stderr}
	if err := m.ParseFlags(args); err != nil {
		if help, ok := errors.AsType[*helpShownError](err); ok {
			return help.code
		}
		complain(stderr, err)
		return exitUsage
	}
	err := m.Run(ctx)
	m.Close()
	if _, interrupted := errors.AsType[*execution.InterruptError](err); err != nil && !interrupted {
		complain(stderr, err)
	}
	return execution.ExitCode(err)
}

// complain is the one message of a failed run. Where standard error is closed
// the exit code has to do.
func complain(stderr io.Writer, err error) { _, _ = fmt.Fprintf(stderr, "agl: %v\n", err) }

// Main is the program: ParseFlags, Run, Close, in that order.
type Main struct {
	Stdout, Stderr io.Writer
	// Listening, if not nil, hears the base URL of a server that has started.
	Listening func(url string)

	command command

	mu     sync.Mutex
	cancel context.CancelFunc // ends a running command
	done   chan struct{}
}

// command is what a sub-command does. It returns when it is done or, a server,
// when ctx has ended and every accepted request is answered.
type command interface {
	run(ctx context.Context, m *Main) error
}

// cli lists the sub-commands.
type cli struct {
	Store     storeCommand     `cmd:"" help:"Serve a store: the task queue and trace database that algorithms and runners share."`
	Proxy     proxyCommand     `cmd:"" help:"Serve the LLM proxy, which records every model call of an agent."`
	Init      initCommand      `cmd:"" help:"Write an example agent with its tasks and run file, in a language of your choice."`
	Train     trainCommand     `cmd:"" help:"Train an agent by a run file: agent, data, algorithm, all in one."`
	Policy    policyCommand    `cmd:"" help:"The embedded policy, a small model that really trains, for any Tinker client: create, serve."`
	Runner    runnerCommand    `cmd:"" help:"Run any program as the agent, on the rollouts of a store."`
	Config    configCommand    `cmd:"" help:"Check run files, and print their JSON Schema: check, schema."`
	Doctor    doctorCommand    `cmd:"" help:"Look at what a run needs: file, agent, tasks, models, store, ports."`
	DB        dbCommand        `cmd:"" name:"db" help:"Look after a store's database: status, migrate, check, vacuum, backup, export, import."`
	Rollouts  rolloutsCommand  `cmd:"" help:"List rollouts, or watch them as they change."`
	Trace     traceCommand     `cmd:"" help:"Show a rollout's spans as a tree, with times, tokens and rewards."`
	Attempts  attemptsCommand  `cmd:"" help:"List a rollout's attempts."`
	Spans     spansCommand     `cmd:"" help:"List a rollout's spans."`
	Resources resourcesCommand `cmd:"" help:"List the versions of the resources, or show one."`
	Workers   workersCommand   `cmd:"" help:"List workers, or watch them as they change."`
	Stats     statsCommand     `cmd:"" help:"Count what the store holds."`
	Enqueue   enqueueCommand   `cmd:"" help:"Enqueue the tasks of a file as rollouts."`
	Cancel    cancelCommand    `cmd:"" help:"Cancel rollouts."`
	Export    exportCommand    `cmd:"" help:"Write triplets, trajectories or chat messages to a file, for use in any trainer."`
	Version   versionCommand   `cmd:"" help:"Print the version."`
}

// helpShownError ends the parsing of a command line that asked for help.
type helpShownError struct{ code int }

func (e *helpShownError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// ParseFlags reads the command line. Its error names the flag, the value and
// what is allowed.
func (m *Main) ParseFlags(args []string) (err error) {
	commands := new(cli)
	parser, err := kong.New(commands,
		kong.Name("agl"),
		kong.Description("Trains AI agents: a task queue and trace store in the middle, agents on one side, learning algorithms on the other."),
		kong.Vars{"rolloutStatuses": statusList(), "workerStatuses": workerStatusList(), "attemptStatuses": attemptStatusList(), "database": backend.Default},
		kong.Writers(m.Stdout, m.Stderr),
		// After printing help kong expects the process to end.
		kong.Exit(func(code int) { panic(&helpShownError{code}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		return fmt.Errorf("set up the command line: %w", err)
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *helpShownError:
			err = r
		default:
			panic(r)
		}
	}()
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return usageError(err)
	}
	selected, ok := reflect.TypeAssert[command](parsed.Selected().Target.Addr())
	if !ok {
		return fmt.Errorf("%s is not a command", parsed.Command())
	}
	m.command = selected
	return nil
}

// usageError says where help is to be had.
func usageError(err error) error {
	help := "agl --help"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
		if selected := parse.Context.Selected(); selected != nil {
			help = selected.FullPath() + " --help"
		}
	}
	// A variable's value may hold a password; what was wrong with it has been said.
	message := regexp.MustCompile(` \(from envar (\w+)=".*"\)`).ReplaceAllString(err.Error(), " (from $1)")
	return fmt.Errorf("%s (see %s)", message, help)
}

// Run does the command to its end. It is called once.
func (m *Main) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	m.mu.Lock()
	m.cancel, m.done = cancel, done
	m.mu.Unlock()
	return m.command.run(ctx, m)
}

// Close ends a running command and returns when it has.
func (m *Main) Close() {
	m.mu.Lock()
	cancel, done := m.cancel, m.done
	m.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}

// printf writes to standard output. A reader that went away (a closed pager) is
// reported as any other error.
func (m *Main) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(m.Stdout, format, args...)
	return errOutput(err)
}

func errOutput(err error) error {
	if err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	return nil
}

// styled returns a buffered standard output that keeps as much of styled text as
// the terminal can show, and none of it where there is no terminal. A style must
// be written in one piece.
func (m *Main) styled() (out io.Writer, flush func() error) {
	buffer := bufio.NewWriter(m.Stdout)
	return &colorprofile.Writer{Forward: buffer, Profile: colorprofile.Detect(m.Stdout, os.Environ())},
		func() error { return errOutput(buffer.Flush()) }
}
