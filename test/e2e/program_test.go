//go:build unix

package e2e

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	ossignal "os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/test/process"
)

// envProgram makes the test binary the training program. The tests start it so, and it starts
// itself so for its runner processes.
const envProgram = "AGL_E2E_PROGRAM"

// aglBinary is the real agl command, built by TestMain.
var aglBinary string

// token is the token of all servers of this suite.
const token = "e2e-" + process.Canary

func TestMain(m *testing.M) {
	if kind := os.Getenv(envAgent); kind != "" {
		if err := agent(kind); err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(envProgram) == "" {
		if err := os.Setenv("AGL_TOKEN", token); err != nil {
			panic(err)
		}
		// A program begins with a signal ignored if its parent ignores it, as under nohup; one that its parent catches it has anew.
		ossignal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		os.Exit(process.Main(m, &aglBinary))
	}
	ctx, stop := execution.NotifyContext(context.Background())
	err := program(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "program:", err)
	}
	os.Exit(execution.ExitCode(err))
}

// The first words of the lines in which a program reports to its test.
const (
	saidAlgorithm = "algorithm" // PID: this process runs the algorithm
	saidRunner    = "runner"    // PID: this process runs a runner
	saidReturned  = "returned"  // ID: an agent has done this rollout, before anybody interrupted it
	saidStuck     = "stuck"     // ID: an agent will not do this rollout
	saidProcessed = "processed" // N: the algorithm has done what it does with rollouts
	saidStored    = "stored"    // ID: after the run, the program's own store has this rollout as succeeded
	saidListening = "listening" // URL: the program's own store server
)

// behaviour is how the sides of a program behave.
type behaviour struct {
	strategy  string
	main      string
	runners   int
	processes int

	rollouts  int    // how many the algorithm waits for; 0 is without end
	stuck     int    // how many more it enqueues then, which the agent will not do
	algorithm string // what it does then: ends, fails, waits, lingers (until SIGUSR1) or deaf
	agent     string // how it does not do a rollout: waits, lingers, deaf, freezes or exits

	maxRollouts  int // of each runner
	runnerFails  bool
	patience     time.Duration // of each rung of the ladder
	first        time.Duration // of the first rung, and then of each agent; 0 is patience, and a quarter of it
	storeOutage  time.Duration
	unresponsive time.Duration // after which a rollout is given to another runner
}

func parseBehaviour(args []string) (behaviour, error) {
	var b behaviour
	flags := flag.NewFlagSet("program", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&b.strategy, "strategy", "shared-memory", "")
	flags.StringVar(&b.main, "main", "algorithm", "")
	flags.IntVar(&b.runners, "runners", 2, "")
	flags.IntVar(&b.processes, "processes", 0, "")
	flags.IntVar(&b.rollouts, "rollouts", 0, "")
	flags.StringVar(&b.algorithm, "algorithm", "ends", "")
	flags.IntVar(&b.stuck, "stuck", 0, "")
	flags.StringVar(&b.agent, "agent", "waits", "")
	flags.IntVar(&b.maxRollouts, "max-rollouts", 0, "")
	flags.BoolVar(&b.runnerFails, "runner-fails", false, "")
	flags.DurationVar(&b.patience, "patience", 20*time.Second, "")
	flags.DurationVar(&b.first, "first", 0, "")
	flags.DurationVar(&b.storeOutage, "store-outage", 20*time.Second, "")
	flags.DurationVar(&b.unresponsive, "unresponsive", 0, "")
	err := flags.Parse(args)
	return b, err
}

// program is a training program as users write it, with a configurable behaviour.
func program(ctx context.Context, args []string, out io.Writer) error {
	b, err := parseBehaviour(args)
	if err != nil {
		return err
	}
	config, err := execution.ConfigFromEnv(os.Getenv)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var own *store.Store
	parts := execution.Parts{
		Algorithm: func(ctx context.Context, s agl.Store) error { return b.runAlgorithm(ctx, s, out) },
		Runner:    func(ctx context.Context, s agl.Store, worker int) error { return b.runRunner(ctx, s, worker, out, log) },
		Runners:   b.runners,
		OpenStore: func(ctx context.Context) (execution.OpenedStore, error) {
			var err error
			own, err = openMemory(ctx)
			return execution.OpenedStore{Store: own}, err
		},
	}
	runErr := b.execution(config, out, log).Execute(ctx, parts)
	if own == nil {
		return runErr
	}
	after := context.WithoutCancel(ctx)
	page, err := own.QueryRollouts(after, agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}})
	if err != nil {
		return errors.Join(runErr, err)
	}
	for _, r := range page.Items {
		say(out, saidStored, r.RolloutID)
	}
	return errors.Join(runErr, own.Close(after))
}

func openMemory(ctx context.Context) (*store.Store, error) {
	driver, err := memory.New(memory.Config{})
	if err != nil {
		return nil, err
	}
	return store.New(ctx, store.Config{Driver: driver})
}

// say writes a line in one piece, so that processes may share a pipe.
func say(out io.Writer, what string, detail any) {
	if _, err := fmt.Fprintf(out, "%s %v\n", what, detail); err != nil {
		panic(err)
	}
}

func (b behaviour) execution(config execution.Config, out io.Writer, log *slog.Logger) execution.Strategy {
	if b.strategy == "shared-memory" {
		return execution.SharedMemory{JoinTimeout: cmp.Or(b.first, b.patience), GraceTimeout: b.patience, Logger: log}
	}
	return execution.ClientServer{
		Config: config, Processes: b.processes, Main: execution.Role(b.main),
		GracefulTimeout: cmp.Or(b.first, b.patience), InterruptTimeout: b.patience, TerminateTimeout: b.patience,
		StoreOutage: b.storeOutage, Listening: func(url string) { say(out, saidListening, url) }, Logger: log,
	}
}

// runAlgorithm keeps a few rollouts queued, waits for each, and then does what
// its behaviour says.
func (b behaviour) runAlgorithm(ctx context.Context, s agl.Store, out io.Writer) error {
	say(out, saidAlgorithm, os.Getpid())
	lingering, stop := lingering()
	defer stop()
	if err := b.useRunners(ctx, s); err != nil {
		return b.ended(ctx, err)
	}
	say(out, saidProcessed, b.rollouts)
	switch b.algorithm {
	case "fails":
		return errors.New("the algorithm has failed")
	case "waits":
		<-ctx.Done()
	case "lingers":
		select {
		case <-lingering:
		case <-ctx.Done():
			return errors.New("the algorithm was stopped although nothing had failed")
		}
	}
	return b.ended(ctx, nil)
}

// lingering waits for the signal by which a test ends a lingering program.
func lingering() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	ossignal.Notify(c, syscall.SIGUSR1)
	return c, func() { ossignal.Stop(c) }
}

// ended returns the error with which an algorithm ends. For a deaf one, it never returns.
func (b behaviour) ended(_ context.Context, err error) error {
	if b.algorithm == "deaf" {
		select {}
	}
	return err
}

func (b behaviour) useRunners(ctx context.Context, s agl.Store) error {
	if _, err := s.AddResources(ctx, agl.AddResourcesParams{Resources: agl.Resources{{
		Name: "prompt", Resource: agl.PromptTemplate{Template: "say hi", Engine: agl.PromptFString},
	}}}); err != nil {
		return fmt.Errorf("add resources: %w", err)
	}
	const ahead = 4
	var queued []string
	enqueued, done := 0, 0
	for b.rollouts == 0 || done < b.rollouts {
		for len(queued) < ahead && (b.rollouts == 0 || enqueued < b.rollouts) {
			id, err := b.enqueue(ctx, s, `{}`)
			if err != nil {
				return err
			}
			queued = append(queued, id)
			enqueued++
		}
		if _, err := s.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: queued[:1]}); err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		queued = queued[1:]
		done++
	}
	for range b.stuck {
		id, err := b.enqueue(ctx, s, `{"stuck":true}`)
		if err == nil {
			err = awaitClaim(ctx, s, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b behaviour) enqueue(ctx context.Context, s agl.Store, task string) (string, error) {
	var config agl.RolloutConfig
	if b.unresponsive > 0 {
		const enough = 10
		config = agl.RolloutConfig{
			UnresponsiveSeconds: agl.Some(b.unresponsive.Seconds()), MaxAttempts: enough,
			RetryCondition: []agl.AttemptStatus{agl.AttemptUnresponsive},
		}
	}
	rollouts, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{
		Input: jsontext.Value(task), Config: &config,
	}}})
	if err != nil {
		return "", fmt.Errorf("enqueue: %w", err)
	}
	return rollouts[0].RolloutID, nil
}

// awaitClaim returns when a runner has taken a rollout.
func awaitClaim(ctx context.Context, s agl.Store, id string) error {
	wait := agl.WaitForRolloutsParams{RolloutIDs: []string{id}, Timeout: agl.Some(10 * time.Millisecond)}
	for {
		r, err := s.GetRollout(ctx, agl.GetRolloutParams{RolloutID: id})
		if err != nil {
			return fmt.Errorf("look up a rollout: %w", err)
		}
		if !r.Status.Queued() {
			return nil
		}
		if _, err := s.WaitForRollouts(ctx, wait); err != nil {
			return fmt.Errorf("wait: %w", err)
		}
	}
}

// sayReturned says of which agents the runner has taken the result. An agent that is interrupted just as it returns has
// not finished.
type sayReturned struct {
	agl.UnimplementedHook

	out io.Writer
}

func (h sayReturned) OnTraceEnd(_ context.Context, task agl.Task, end agl.AttemptEnd) error {
	if stuck, _ := rawjson.Get(task.Input(), "stuck"); stuck == nil && end.Outcome.Kind == agl.OutcomeOK {
		say(h.out, saidReturned, task.Rollout.RolloutID)
	}
	return nil
}

func (b behaviour) runRunner(ctx context.Context, s agl.Store, worker int, out io.Writer, log *slog.Logger) error {
	say(out, saidRunner, os.Getpid())
	lingering, stop := lingering()
	defer stop()
	agent := agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
		if stuck, _ := rawjson.Get(task.Input(), "stuck"); stuck == nil {
			return agl.RewardResult(1), nil
		}
		say(out, saidStuck, task.Rollout.RolloutID)
		switch b.agent {
		case "lingers":
			<-lingering
			return agl.RewardResult(1), nil
		case "deaf":
			select {}
		case "exits":
			os.Exit(7)
		case "freezes":
			if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
				return agl.Result{}, fmt.Errorf("freeze: %w", err)
			}
		}
		<-ctx.Done()
		return agl.Result{}, ctx.Err()
	})
	r, err := runner.New(runner.Config{
		Store: s, Agent: agent, Hooks: []agl.Hook{sayReturned{out: out}}, FirstWorker: worker, MaxRollouts: b.maxRollouts,
		GracePeriod: cmp.Or(b.first, b.patience/4), MaxOutage: b.storeOutage, ReportTimeout: b.storeOutage, Logger: log,
	})
	if err != nil {
		return err
	}
	if err := r.Run(ctx); err != nil {
		return err
	}
	if b.runnerFails {
		return errors.New("the runner has failed")
	}
	return nil
}
