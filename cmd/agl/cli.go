package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/alecthomas/kong"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/gateway"
	"github.com/agl-go/agl/internal/homedir"
	"github.com/agl-go/agl/internal/spelling"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/store"
)

// cli lists the sub-commands.
type cli struct {
	Store      storeCommand      `cmd:"" help:"Serve a store: the task queue and trace database that algorithms and runners share."`
	Proxy      proxyCommand      `cmd:"" help:"Serve the LLM proxy, which records every model call of an agent."`
	Init       initCommand       `cmd:"" help:"Write an example agent with its tasks and run file, in a language of your choice."`
	Train      trainCommand      `cmd:"" help:"Train an agent from a run file, which names the agent, the data and the algorithm."`
	Serve      serveCommand      `cmd:"" help:"Serve the model that a run has trained, for any OpenAI client."`
	Policy     policyCommand     `cmd:"" help:"The embedded policy, a small model that any Tinker client can train: create, serve, export."`
	Runner     runnerCommand     `cmd:"" help:"Run any program as the agent on a store's rollouts."`
	Config     configCommand     `cmd:"" help:"Check run files, and print their JSON Schema: check, schema."`
	Doctor     doctorCommand     `cmd:"" help:"Check what a run needs: file, agent, tasks, models, store, ports."`
	DB         dbCommand         `cmd:"" name:"db" help:"Maintain a store's database: status, migrate, check, vacuum, backup, export, import."`
	Project    projectCommand    `cmd:"" help:"Projects of a server, each a store of its own: create, list, limit, archive."`
	Audit      auditCommand      `cmd:"" help:"What was done to a store, by whom and from where."`
	Release    releaseCommand    `cmd:"" help:"Releases to live sessions: propose, list, show, promote, rollback, freeze, resume."`
	Key        keyCommand        `cmd:"" help:"Keys of a store, each with what it may do: create, list, revoke."`
	Report     reportCommand     `cmd:"" help:"Write a run's curves, groups and some of its conversations to one HTML file."`
	Runs       runsCommand       `cmd:"" help:"Runs of algorithms and their metrics: list, show."`
	Rollouts   rolloutsCommand   `cmd:"" help:"List rollouts, or watch them as they change."`
	Trace      traceCommand      `cmd:"" help:"Show a rollout's spans as a tree, with times, tokens and rewards."`
	Attempts   attemptsCommand   `cmd:"" help:"List a rollout's attempts."`
	Spans      spansCommand      `cmd:"" help:"List a rollout's spans."`
	Resources  resourcesCommand  `cmd:"" help:"List the versions of the resources, or show one."`
	Workers    workersCommand    `cmd:"" help:"List workers, or watch them as they change."`
	Stats      statsCommand      `cmd:"" help:"Count what the store holds."`
	Enqueue    enqueueCommand    `cmd:"" help:"Enqueue the tasks of a file as rollouts."`
	Cancel     cancelCommand     `cmd:"" help:"Cancel rollouts."`
	Forget     forgetCommand     `cmd:"" help:"Delete a user's sessions, and list the snapshots that have learned from them."`
	Export     exportCommand     `cmd:"" help:"Write triplets, trajectories or chat messages to a file, for use in any trainer."`
	Cert       certCommand       `cmd:"" help:"Make a private CA and certificates, for TLS between machines."`
	Completion completionCommand `cmd:"" help:"Print a script that completes commands and flags in a shell."`
	Man        manCommand        `cmd:"" help:"Print the manual page."`
	Version    versionCommand    `cmd:"" help:"Print the version, with the commit and its date."`
}

// subcommand is a sub-command with its flags. run returns when the work is done; that
// of a server returns when ctx has ended and every accepted request is answered.
type subcommand interface {
	run(ctx context.Context, out *console.Console) error
}

// storeUser is a sub-command that reads or changes what a store holds.
type storeUser interface {
	Open(ctx context.Context) (store agl.Store, closeStore func(), err error)
	use(ctx context.Context, out *console.Console, store agl.Store) error
}

// clientUser is a sub-command that needs more of a store than agl.Store: only a server has it.
type clientUser interface {
	Client() (*client.Client, error)
	Wrap(err error) error
	ask(ctx context.Context, out *console.Console, store *client.Client) error
}

// describer is a sub-command about the command line itself.
type describer interface {
	describe(out *console.Console, app *kong.Application) error
}

// withApp runs a describer.
type withApp struct {
	describer
	app *kong.Application
}

func (c withApp) run(_ context.Context, out *console.Console) error { return c.describe(out, c.app) }

// withClient runs a clientUser with a client of its store.
type withClient struct{ clientUser }

func (c withClient) run(ctx context.Context, out *console.Console) error {
	store, err := c.Client()
	if err != nil {
		return err
	}
	defer store.Close()
	return c.Wrap(c.ask(ctx, out, store))
}

// withStore runs a storeUser with a client of its store.
type withStore struct{ storeUser }

func (c withStore) run(ctx context.Context, out *console.Console) error {
	store, closeStore, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer closeStore()
	return c.use(ctx, out, store)
}

// Main is the program: ParseFlags, Run, Close, in that order.
type Main struct {
	Stdout, Stderr io.Writer
	// Listening, if not nil, is called with the base URL of a server that has started.
	Listening func(url string)

	command subcommand

	mu     sync.Mutex
	cancel context.CancelFunc // ends a running command
	done   chan struct{}
}

// helpShownError ends the parsing of a command line that asked for help.
type helpShownError struct {
	code int
	err  error // what kept the help from being written; nil if it was
}

func (e *helpShownError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// homePath reads a path in which no shell has expanded ~, such as --output=~/runs.
func homePath(ctx *kong.DecodeContext, to reflect.Value) error {
	var path string
	if err := ctx.Scan.PopValueInto("path", &path); err != nil {
		return err
	}
	if path == "" {
		return errors.New("needs a value, got an empty one")
	}
	path, err := homedir.Expand(path)
	to.SetString(path)
	return err
}

// newParser makes the parser of the command line.
func newParser(stdout, stderr io.Writer) (*kong.Kong, error) {
	parser, err := kong.New(&cli{Release: newReleaseCommand()},
		kong.Name("agl"),
		kong.Description("Trains AI agents: a task queue and trace store in the middle, agents on one side, learning algorithms on the other."),
		kong.Vars{
			"order": "", "tokenfor": "", "releaseshare": strconv.FormatFloat(release.DefaultShare, 'g', -1, 64),
			"rolloutStatuses": commaList(agl.RolloutStatuses()), "workerStatuses": commaList(agl.WorkerStatuses()), "attemptStatuses": commaList(agl.AttemptStatuses()),
			"database": store.DefaultDSN, "runfile": defaultFile, "gatewayModel": gateway.DefaultModel,
		},
		kong.Writers(stdout, stderr),
		kong.NamedMapper("home", kong.MapperFunc(homePath)),
		// After printing help kong expects the process to end.
		kong.Exit(func(code int) { panic(&helpShownError{code: code}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Help(func(options kong.HelpOptions, ctx *kong.Context) error {
			if err := errors.Join(nameProgram(ctx.Model, programName()), kong.DefaultHelpPrinter(options, ctx)); err != nil { // kong would take it for an error of the command line
				panic(&helpShownError{code: 1, err: &console.OutputError{Err: err}})
			}
			return nil
		}),
		kong.ValueFormatter(helpOfValue),
		// With a resolver, kong forgets what is wrong with an environment variable whose flag is given.
		kong.Resolvers(kong.ResolverFunc(func(*kong.Context, *kong.Path, *kong.Flag) (any, error) { return nil, nil })),
	)
	if err != nil {
		return nil, fmt.Errorf("set up the command line: %w", err)
	}
	return parser, errors.Join(describeCommands(parser.Model), ignoreEmpty(parser.Model))
}

// ignoreEmpty makes environment variables that are set and empty count as not set, for all flags alike.
func ignoreEmpty(app *kong.Application) error {
	return kong.Visit(app, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			flag.Tag.Envs = slices.DeleteFunc(slices.Clone(flag.Tag.Envs), func(name string) bool { return os.Getenv(name) == "" })
		}
		return next(nil)
	})
}

// helpOfValue names the variables of a flag also where [ignoreEmpty] has left them out.
func helpOfValue(v *kong.Value) string {
	shown, tag := *v, *v.Tag
	if v.Flag != nil {
		tag.Envs = v.Flag.Envs
	}
	shown.Tag = &tag
	return kong.DefaultHelpValueFormatter(&shown)
}

// ParseFlags reads the command line. Its error names the flag, the value and what is allowed.
func (m *Main) ParseFlags(args []string) (err error) {
	args = joinNegative(args)
	parser, err := newParser(m.Stdout, m.Stderr)
	if err != nil {
		return err
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
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "--version":
		args[0] = "version"
	case args[0] == "help":
		args = append(args[1:], "--help")
	}
	if err := checkEmpty(parser.Model, args); err != nil {
		return err
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return usageError(err)
	}
	if err := checkEmptyFlags(parsed); err != nil {
		return err
	}
	if err := checkTokens(parsed); err != nil {
		return err
	}
	if err := checkFolderFlags(parsed); err != nil {
		return err
	}
	switch selected := parsed.Selected().Target.Addr().Interface().(type) {
	case subcommand:
		m.command = selected
	case storeUser:
		m.command = withStore{selected}
	case clientUser:
		m.command = withClient{selected}
	case describer:
		m.command = withApp{selected, parser.Model}
	default:
		return fmt.Errorf("%s is not a command", parsed.Command())
	}
	return nil
}

// checkEmpty refuses an empty argument, such as "$DIR" of a shell where DIR is not set: as a path it would be the current folder. Those
// of an agent's program are its own.
func checkEmpty(app *kong.Application, args []string) error {
	takesValue := map[string]bool{} // a flag of some command
	_ = kong.Visit(app, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok && !flag.IsBool() {
			takesValue["--"+flag.Name], takesValue["-"+string(flag.Short)] = true, true
		}
		return next(nil)
	})
	for i, arg := range args {
		if arg == "--" || args[0] == "runner" {
			return nil
		}
		if arg == "" && (i == 0 || !takesValue[args[i-1]]) {
			return fmt.Errorf("argument %d is empty: a variable of the shell that is not set? (see %s --help)", i+1, programName())
		}
	}
	return nil
}

// checkEmptyFlags refuses an empty value of a flag, as [checkEmpty] does of an argument: --rollout "$ID" of a variable that is not set would
// choose all. Tokens and certificates may be empty, where a script leaves it to its variables whether there is one.
func checkEmptyFlags(parsed *kong.Context) error {
	for _, given := range parsed.Path {
		if given.Flag == nil {
			continue
		}
		empty := false
		switch value := given.Flag.Target.Interface().(type) {
		case flags.Token, flags.Path:
		case flags.Database:
			empty = value.Name == ""
		case []string:
			empty = len(value) == 0 || slices.Contains(value, "")
		default:
			kind := given.Flag.Target.Kind()
			empty = (kind == reflect.String || kind == reflect.Slice || kind == reflect.Map) && given.Flag.Target.Len() == 0
		}
		if empty {
			return fmt.Errorf("--%s: needs a value, got an empty one (see %s%s --help)", given.Flag.Name, programName(), strings.TrimPrefix(parsed.Selected().FullPath(), "agl"))
		}
	}
	return nil
}

// checkTokens refuses a token that no header can carry: when all is read, as a flag counts for more than the environment.
func checkTokens(parsed *kong.Context) error {
	for _, f := range parsed.Flags() {
		token, ok := reflect.TypeAssert[flags.Token](f.Target)
		if !ok {
			continue
		}
		if err := token.Check(); err != nil {
			from := ""
			for _, name := range f.Envs {
				if string(token) == os.Getenv(name) {
					from = " (from " + name + ")"
				}
			}
			return fmt.Errorf("--%s: %w%s (see %s%s --help)", f.Name, err, from, programName(), strings.TrimPrefix(parsed.Selected().FullPath(), "agl"))
		}
	}
	return nil
}

// checkFolderFlags refuses --store and --watch beside the folder of a run: the store in the folder is read, and nobody changes it meanwhile.
func checkFolderFlags(parsed *kong.Context) error {
	reader, ok := reflect.TypeAssert[interface{ ReadsFolder() bool }](parsed.Selected().Target.Addr())
	if !ok || !reader.ReadsFolder() {
		return nil
	}
	for _, given := range parsed.Path {
		wrong := ""
		switch {
		case given.Flag == nil:
		case given.Flag.Name == "store":
			wrong = "--store and the folder of a run are two stores; give one of them"
		case given.Flag.Name == "watch":
			wrong = "--watch: the folder of a run does not change while it is read; a run that is under way is watched at its server: --store with the URL that it has printed"
		}
		if wrong != "" {
			return fmt.Errorf("%s (see %s%s --help)", wrong, programName(), strings.TrimPrefix(parsed.Selected().FullPath(), "agl"))
		}
	}
	return nil
}

// joinNegative returns the arguments with --flag -5 as --flag=-5, so that the flag says what it
// allows: a number with a minus is never a flag.
func joinNegative(args []string) []string {
	negative := regexp.MustCompile(`^-\.?[0-9]`)
	joined := make([]string, 0, len(args))
	for i, arg := range args {
		if arg == "--" {
			return append(joined, args[i:]...)
		}
		if last := len(joined) - 1; last >= 0 && negative.MatchString(arg) && strings.HasPrefix(joined[last], "--") && !strings.Contains(joined[last], "=") {
			joined[last] += "=" + arg
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}

func commaList[T ~string](values []T) string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	return strings.Join(names, ", ")
}

// usageError adds the command that prints the right help.
func usageError(err error) error {
	see, takes := "agl --help", ""
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
		if selected := parse.Context.Selected(); selected != nil {
			see = selected.FullPath() + " --help"
			if len(selected.Positional) > 0 { // the flag may stand for what is no flag
				takes = "; usage: " + programName() + " " + selected.Summary()
			}
		}
	}
	see = programName() + strings.TrimPrefix(see, "agl")
	// Kong quotes the variable's value, which may hold a password.
	message := regexp.MustCompile(` \(from envar (\w+)=".*"\)`).ReplaceAllString(err.Error(), " (from $1)")
	message = withNear(message)
	for _, r := range []struct{ kong, ours string }{
		{`expected a valid [0-9]+ bit int but got ("-?[0-9]{19,}")`, "got $1, must be a whole number of at most 18 digits"},
		{`expected a valid [0-9]+ bit int but got ("[^"]*")`, "got $1, must be a whole number such as 10"},
		{`expected a valid 64 bit uint but got ("[0-9]{20,}")`, "got $1, must be a whole number of at most 18446744073709551615"},
		{`expected a valid [0-9]+ bit uint but got ("[^"]*")`, "got $1, must be a whole number such as 10, and not negative"},
		{`expected \w+ value but got "EOL" \(<EOL>\)`, "needs a value"},
		{`expected \w+ value but got ("[^"]*") \((?:long|short) flag\)`, "needs a value, got the flag $1"},
		{`missing value, expecting .*`, "needs a value"},
		{`^expected (".*")$`, "missing $1" + strings.ReplaceAll(takes, "$", "$$")},
		{`must be one of "",`, "must be one of "}, // the empty one is the default
		{`^(unexpected argument (latest|worst|best))$`, "$1; " + programName() + " trace $2 shows that rollout"},
		{`^(unknown flag \S+)$`, "$1" + strings.ReplaceAll(takes, "$", "$$")},
		{`expected a float but got "([^"]*)" \(string\)`, `got "$1", must be a number such as 0.5`},
		{`expected duration but got ("[0-9.]{7,}h[^"]*"): .*$`, "got $1, must be a duration such as 90s, 10m or 1h30m, of at most 2562047h"},
		{`expected duration but got ("[^"]*"): .*$`, "got $1, must be a duration such as 90s, 10m or 1h30m"},
		{`(?:<[^>]*>: )?(?:stat|CreateFile) (.*): [^:]*(?:no such file or directory|cannot find).*$`, "there is no folder $1"},
		{`(?:<[^>]*>: )?"(.*)" exists but is not a directory`, "$1 is a file, not a folder"},
	} {
		message = regexp.MustCompile(r.kong).ReplaceAllString(message, r.ours)
	}
	return fmt.Errorf("%s (see %s)", message, see)
}

// withNear leaves out those of Kong's suggestions that are other words: Kong takes each that is two edits away, however short.
func withNear(message string) string {
	found := regexp.MustCompile(`^((?:unexpected argument|unknown flag) (\S+)), did you mean (?:one of )?(.*)\?$`).FindStringSubmatch(message)
	if found == nil {
		return message
	}
	word := found[2]
	near := slices.DeleteFunc(strings.Split(found[3], ", "), func(quoted string) bool {
		candidate := strings.Trim(quoted, `"`)
		return !strings.HasPrefix(candidate, word) && spelling.Meant(strings.TrimLeft(word, "-"), []string{strings.TrimLeft(candidate, "-")}) == ""
	})
	switch len(near) {
	case 0:
		return found[1]
	case 1:
		return found[1] + ", did you mean " + near[0] + "?"
	default:
		return found[1] + ", did you mean one of " + strings.Join(near, ", ") + "?"
	}
}

// Run runs the command. It is called once.
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

// Close ends a running command and waits for it.
func (m *Main) Close() {
	m.mu.Lock()
	cancel, done := m.cancel, m.done
	m.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}
