// Command calculator trains a small language model inside an agent, through the
// whole system: algorithm, store, proxy, runners, tracer, adapter, optimizer.
//
// The agent answers questions such as "12 times 7" with the help of a tool. The model, a transformer of about 107,000
// parameters that is part of this program, first imitates demonstrations that are mostly wrong, and then learns from rewards
// alone to call the tool, and to call it right.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
	"github.com/charmbracelet/x/term"

	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/examples/calculator/arithmetic"
	"github.com/agl-go/agl/examples/calculator/recipe"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/display"
)

// options are the flags. By default the run is stored in memory: it takes half a minute, of which waiting for the disk would be
// a large part, and can be repeated by its seed.
type options struct {
	Seed      uint64        `default:"1" help:"Decides the model's first weights, the order of the questions and the sampling."`
	Steps     int           `default:"${steps}" help:"Steps of reinforcement learning, 128 questions each."`
	WarmStart int           `default:"${warmStart}" help:"Steps of supervised training that come first."`
	Questions int           `default:"1" help:"Questions of each training rollout, one conversation after the other; a step has 128 questions."`
	Credit    string        `default:"trajectory" enum:"trajectory,turn" help:"What rewards are credited to: the rollout, which gets the mean over its questions, or each question's own calls (${enum})."`
	Validate  int           `default:"0" help:"Steps between tests with the held-out questions, besides before the first and after the last; 0 has none in between."`
	Staleness int           `default:"0" help:"By how many versions sampling may run ahead of training; 0 samples, trains, and samples again."`
	Tool      time.Duration `default:"0" help:"The median time that the tool takes, which is log-normal with σ = 1.2; 0 takes none."`
	Trainer   time.Duration `default:"0" help:"The time that a step of training takes beside the computation, as on a larger model; 0 takes none."`
	Runners   int           `default:"16" help:"Rollouts that run at once."`
	Engine    string        `default:"embedded" placeholder:"WHERE" help:"Where the model is: embedded in this process, http for a process of its own that speaks the Tinker protocol, or the URL of such an engine, for example agl policy serve (${default})."`
	Strategy  string        `default:"shared-memory" enum:"shared-memory,client-server" help:"Where runners run: in this process, or in processes that meet it at a store server (${enum})."`
	Store     string        `placeholder:"URL" help:"A store server that runs already, such as http://127.0.0.1:4747; needs --strategy client-server."`
	DB        string        `name:"db" default:"memory:" placeholder:"DATABASE" help:"Where this program keeps rollouts and spans: memory:, sqlite:PATH or postgres://… (${default})."`
	Summary   string        `placeholder:"FILE" type:"path" help:"Write the results there as JSON."`
	Out       string        `placeholder:"DIR" type:"path" help:"Keep checkpoints and metrics there, and resume from the last checkpoint."`
	Profile   string        `placeholder:"FILE" type:"path" help:"Write a CPU profile of this process there."`
	Serve     bool          `name:"serve-engine" hidden:"" help:"Be the process of --engine http."`
	LogLevel  string        `default:"warn" enum:"debug,info,warn,error" help:"What is logged to standard error (${enum})."`
}

// exitUsage is the exit code of a wrong flag or role variable; the others are those of execution.ExitCode.
const exitUsage = 2

func main() {
	var opt options
	parser := kong.Must(&opt,
		kong.Name("calculator"),
		kong.Description("Trains a small language model to use a calculator, inside a real agent."),
		kong.Vars{"steps": strconv.Itoa(recipe.Steps), "warmStart": strconv.Itoa(recipe.WarmStartSteps)},
		kong.UsageOnError())
	_, err := parser.Parse(os.Args[1:])
	if err == nil {
		err = opt.validate()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "calculator:", err)
		os.Exit(exitUsage)
	}
	// Nearly all memory of a rollout is garbage when it ends, and memory is plentiful: collect less often.
	debug.SetGCPercent(400)
	ctx, stop := execution.NotifyContext(context.Background())
	err = run(ctx, opt)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "calculator:", err)
	}
	os.Exit(execution.ExitCode(err))
}

func (o options) validate() error {
	switch {
	case o.Steps < 1:
		return fmt.Errorf("--steps: got %d, must be at least 1", o.Steps)
	case o.WarmStart < 1:
		return fmt.Errorf("--warm-start: got %d, must be at least 1", o.WarmStart)
	case o.Staleness < 0:
		return fmt.Errorf("--staleness: got %d, must not be negative", o.Staleness)
	case o.Tool < 0:
		return fmt.Errorf("--tool: got %v, must not be negative", o.Tool)
	case o.Trainer < 0:
		return fmt.Errorf("--trainer: got %v, must not be negative", o.Trainer)
	case o.Runners < 1:
		return fmt.Errorf("--runners: got %d, must be at least 1", o.Runners)
	case o.Store != "" && o.Strategy != "client-server":
		return fmt.Errorf("--store: got %s with --strategy %s; a store server needs --strategy client-server", redacted(o.Store), o.Strategy)
	}
	if u, err := url.Parse(o.Store); o.Store != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("--store: got %s, must be an http or https URL such as http://127.0.0.1:4747", redacted(o.Store))
	}
	if err := o.validateEngine(); err != nil {
		return err
	}
	if _, err := store.ParseDSN(o.DB); err != nil {
		return fmt.Errorf("--db: %w", err)
	}
	if o.Summary != "" {
		// Refuse a wrong path now rather than at the end of the run.
		if dir, err := os.Stat(filepath.Dir(o.Summary)); err != nil || !dir.IsDir() {
			return fmt.Errorf("--summary: got %s, must be a file in a directory that exists", o.Summary)
		}
	}
	if o.Questions < 1 || recipe.PromptsPerStep%o.Questions != 0 {
		return fmt.Errorf("--questions: got %d, must divide %d", o.Questions, recipe.PromptsPerStep)
	}
	if o.Validate < 0 {
		return fmt.Errorf("--validate: got %d, must not be negative", o.Validate)
	}
	return o.validateRole(os.Getenv)
}

// discount returns the discount of rewards-to-go. A question has at most two calls, and its reward says nothing about earlier
// questions.
func (o options) discount() float64 {
	if grpo.Credit(o.Credit) == grpo.CreditTurn {
		return 0.5
	}
	return 0
}

// redacted returns a URL without its password.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}

// validateRole checks the role of this process, which the environment sets.
func (o options) validateRole(getenv func(string) string) error {
	role := getenv(execution.EnvRole)
	if o.Strategy != "client-server" {
		if role != "" && role != string(execution.RoleBoth) {
			return fmt.Errorf("%s: got %s with --strategy %s; a role of its own needs --strategy client-server", execution.EnvRole, role, o.Strategy)
		}
		return nil
	}
	_, err := execution.ConfigFromEnv(getenv)
	return err
}

func run(ctx context.Context, opt options) (failed error) {
	began := time.Now()
	if opt.Profile != "" {
		file, err := os.Create(opt.Profile)
		if err != nil {
			return fmt.Errorf("--profile: %w", err)
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return fmt.Errorf("--profile: %w", err)
		}
		defer func() {
			pprof.StopCPUProfile()
			failed = errors.Join(failed, file.Close())
		}()
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(opt.LogLevel)); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if opt.Serve {
		return serveEngine(ctx, opt, log)
	}
	strategy, role, err := opt.strategy(log)
	if err != nil {
		return err
	}
	questions, err := sheets(arithmetic.Train, opt.Questions)
	if err != nil {
		return err
	}
	train, err := dataset.Read(bytes.NewReader(questions), "train.jsonl")
	if err != nil {
		return err
	}
	heldOut, err := dataset.Read(bytes.NewReader(arithmetic.HeldOut), "heldout.jsonl")
	if err != nil {
		return err
	}
	config := trainer.Config{
		Agent:    calculator{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: opt.Runners}}, perQuestion: opt.Credit == string(grpo.CreditTurn), toolLatency: opt.Tool},
		Train:    train,
		Val:      heldOut,
		Strategy: strategy,
		Database: opt.DB,
		Runners:  opt.Runners,
		Logger:   log,
	}
	if role == execution.RoleRunner {
		return fit(ctx, config)
	}
	t, err := newTraining(ctx, opt, log)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, t.closeEngine(context.WithoutCancel(ctx))) }()
	config.Algorithm, config.Proxy = t, t.proxy
	terminal := term.IsTerminal(os.Stdout.Fd())
	t.display = display.New(terminal, display.Options{Out: os.Stdout, Began: began})
	err = fit(ctx, config)
	t.display.Close()
	if err != nil {
		return err
	}
	return t.report(os.Stdout, terminal, time.Since(began))
}

func fit(ctx context.Context, config trainer.Config) error {
	t, err := trainer.New(config)
	if err != nil {
		return err
	}
	return t.Fit(ctx)
}

// strategy returns the strategy of the run and the role of this process in it.
func (o options) strategy(log *slog.Logger) (execution.Strategy, execution.Role, error) {
	if o.Strategy == "shared-memory" {
		return execution.SharedMemory{Logger: log}, execution.RoleBoth, nil
	}
	config, err := execution.ConfigFromEnv(os.Getenv)
	if err != nil {
		return nil, "", err
	}
	switch {
	case o.Store != "":
		config.StoreURL, config.ExternalStore = o.Store, true
	case config.Role == execution.RoleBoth && !config.ExternalStore && os.Getenv(execution.EnvServerPort) == "":
		config.Host, config.Port, config.AnyPort = "127.0.0.1", 0, true
	}
	return execution.ClientServer{Config: config, Processes: min(o.Runners, 2), Logger: log}, config.Role, nil
}

// report prints the results and writes the summary.
func (t *training) report(w io.Writer, terminal bool, elapsed time.Duration) error {
	s := t.grpo.Summary()
	if terminal {
		last := s.Step
		fmt.Fprintf(w, "\npass rate of each step's rollouts\n%s", display.Chart(last-len(t.passRates)+1, t.passRates))
	}
	if s.Before != nil && s.After != nil {
		fmt.Fprintf(w, "\nheld-out questions, before: %s\nheld-out questions, after:  %s\n", display.Rate(s.Before.Rate), display.Rate(s.After.Rate))
		fmt.Fprintf(w, "after, by form of question: %s\n", display.Forms(s.After.Forms))
	}
	for _, sample := range t.samples {
		fmt.Fprintf(w, "\nthe same question %s training:\n", sample.title)
		for _, m := range sample.messages {
			fmt.Fprintf(w, "  %-9s %s\n", m.Role, m.Content)
		}
		if !sample.passed {
			fmt.Fprintln(w, "  (wrong)")
		}
	}
	if t.opt.Summary == "" {
		return nil
	}
	return writeSummary(t.opt, s, elapsed)
}
