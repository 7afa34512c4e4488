package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/alecthomas/kong"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/store/backend"
)

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

// subcommand is what one of them does. It returns when it is done; a server
// returns when ctx has ended and every accepted request is answered.
type subcommand interface {
	run(ctx context.Context, out *console.Console) error
}

// Main is the program: ParseFlags, Run, Close, in that order.
type Main struct {
	Stdout, Stderr io.Writer
	// Listening, if not nil, is told the base URL of a server that has started.
	Listening func(url string)

	command subcommand

	mu     sync.Mutex
	cancel context.CancelFunc // ends a running command
	done   chan struct{}
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
		kong.Vars{
			"rolloutStatuses": commaList(agl.RolloutStatuses()), "workerStatuses": commaList(agl.WorkerStatuses()), "attemptStatuses": commaList(agl.AttemptStatuses()),
			"database": backend.Default,
		},
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
	selected, ok := reflect.TypeAssert[subcommand](parsed.Selected().Target.Addr())
	if !ok {
		return fmt.Errorf("%s is not a command", parsed.Command())
	}
	m.command = selected
	return nil
}

func commaList[T ~string](values []T) string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	return strings.Join(names, ", ")
}

// usageError says which command's help to read.
func usageError(err error) error {
	help := "agl --help"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
		if selected := parse.Context.Selected(); selected != nil {
			help = selected.FullPath() + " --help"
		}
	}
	// Kong quotes the variable's value, which may hold a password.
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
	return m.command.run(ctx, &console.Console{Out: m.Stdout, Err: m.Stderr, Listening: m.Listening})
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
