// Command process measures the cost of a rollout whose agent is a process: the rate of rollouts of a small static program, with
// the store in SQLite, as a share of the rate at which a bare loop starts the same program with the same concurrency. It also
// prints the peaks of goroutines and open files, and the processes and files that were left behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/store"
)

type options struct {
	Agent       string  `default:".cache/bin/process-agent" help:"The agent's binary (make bench-process builds it)." type:"path" placeholder:"FILE"`
	Rollouts    int     `default:"10000" help:"Rollouts of a round, and bare processes."`
	Concurrency int     `default:"64" help:"Processes at once."`
	Rounds      int     `default:"1" help:"How often both are measured; the median of the ratios counts."`
	Dir         string  `default:".cache" help:"Where the database and the attempts' folders are made." type:"path" placeholder:"DIR"`
	Target      float64 `default:"0.4" help:"The ratio to reach."`
}

func main() {
	bench.Main("process", "Measures rollouts of a process agent against a loop that starts the same program, as a ratio.", run)
}

func run(ctx context.Context, opt options) error {
	if opt.Rollouts < 2 || opt.Concurrency < 1 || opt.Rounds < 1 {
		return errors.New("--rollouts must be at least 2, --concurrency and --rounds at least 1")
	}
	var ratios, cpuRatios []float64
	for range opt.Rounds {
		// The bare loop runs before and after, so that a change of the machine's speed affects both.
		before, err := measureBare(ctx, opt, opt.Rollouts/2)
		if err != nil {
			return err
		}
		system, err := measureRollouts(ctx, opt)
		if err != nil {
			return err
		}
		after, err := measureBare(ctx, opt, opt.Rollouts-opt.Rollouts/2)
		if err != nil {
			return err
		}
		bare := float64(opt.Rollouts) / (before.Wall + after.Wall).Seconds()
		rollouts := float64(opt.Rollouts) / system.took.Wall.Seconds()
		bareCPU, rolloutCPU := (before.CPU+after.CPU)/time.Duration(opt.Rollouts), system.took.CPU/time.Duration(opt.Rollouts)
		ratios, cpuRatios = append(ratios, rollouts/bare), append(cpuRatios, float64(bareCPU)/float64(rolloutCPU))
		fmt.Printf("bare loop      %7.0f processes/s, %v CPU each\n", bare, bareCPU.Round(time.Microsecond))
		fmt.Printf("rollouts       %7.0f per second, %v CPU each, %d at once, %d in all\n", rollouts, rolloutCPU.Round(time.Microsecond), opt.Concurrency, opt.Rollouts)
		fmt.Printf("               goroutines %d, %d at most, %d afterwards\n", system.before.goroutines, system.peak.goroutines, system.after.goroutines)
		fmt.Printf("               open files %d, %d at most, %d afterwards\n", system.before.files, system.peak.files, system.after.files)
		fmt.Printf("               left behind: %d processes, %d files\n", system.processes, system.leftovers)
	}
	ratio := bench.Median(ratios)
	verdict := "reached"
	if ratio < opt.Target {
		verdict = "missed"
	}
	fmt.Printf("ratio %.2f, target %.2f: %s (of CPU %.2f, which says more while the machine does other work)\n", ratio, opt.Target, verdict, bench.Median(cpuRatios))
	return nil
}

// measureBare starts the program n times and waits for it each time.
func measureBare(ctx context.Context, opt options, n int) (took bench.Spent, err error) {
	dir, err := os.MkdirTemp(opt.Dir, "bench-process-")
	if err != nil {
		return bench.Spent{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	task := filepath.Join(dir, "task.json")
	if err := os.WriteFile(task, taskInput(0), 0o600); err != nil {
		return bench.Spent{}, err
	}
	var next atomic.Int64
	failed := make([]error, opt.Concurrency)
	var workers sync.WaitGroup
	return bench.Measure(func() error {
		for worker := range opt.Concurrency {
			workers.Go(func() {
				environ := append(os.Environ(), "AGL_TASK_FILE="+task, "AGL_RESULT_FILE="+filepath.Join(dir, strconv.Itoa(worker)))
				for failed[worker] == nil && next.Add(1) <= int64(n) {
					cmd := exec.CommandContext(ctx, opt.Agent)
					cmd.Env = environ
					failed[worker] = cmd.Run()
				}
			})
		}
		workers.Wait()
		return errors.Join(failed...)
	})
}

func taskInput(i int) []byte { return fmt.Appendf(nil, `{"question": "what is %d plus %d?"}`, i, i) }

// cost is the cost of a round of rollouts.
type cost struct {
	took                bench.Spent
	before, peak, after usage
	processes           int // child processes that still exist
	leftovers           int // files and folders of attempts that still exist
}

// measureRollouts runs the program as the agent of the rollouts, from an empty store until all of
// them have succeeded with their rewards.
func measureRollouts(ctx context.Context, opt options) (c cost, err error) {
	dir, err := os.MkdirTemp(opt.Dir, "bench-process-")
	if err != nil {
		return cost{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	attempts := filepath.Join(dir, "attempts")
	if err := os.Mkdir(attempts, 0o700); err != nil {
		return cost{}, err
	}
	if c.before, err = usageNow(); err != nil {
		return cost{}, err
	}
	if err := c.rollouts(ctx, opt, dir, attempts); err != nil {
		return cost{}, err
	}
	left, err := os.ReadDir(attempts)
	if err != nil {
		return cost{}, err
	}
	c.leftovers = len(left)
	if c.processes, err = childProcesses(); err != nil {
		return cost{}, err
	}
	c.after, err = usageNow()
	return c, err
}

func (c *cost) rollouts(ctx context.Context, opt options, dir, attempts string) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := store.Open(ctx, "sqlite:"+filepath.Join(dir, "agl.db"), store.Options{Config: store.Config{Logger: log}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	reaper, err := process.NewReaper()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reaper.Close()) }()
	agent, err := process.New(process.Config{
		Command: []string{opt.Agent}, Environ: os.Environ(), Dir: dir, TempDir: attempts, Reaper: reaper, Logger: log,
	})
	if err != nil {
		return err
	}
	defer agent.Close()
	if err := enqueue(ctx, s, opt.Rollouts); err != nil {
		return err
	}
	r, err := runner.New(runner.Config{Store: s, Agent: agent, Workers: opt.Concurrency, MaxRollouts: opt.Rollouts, Logger: log})
	if err != nil {
		return err
	}
	stopPeaks := watchPeaks(&c.peak)
	c.took, err = bench.Measure(func() error { return r.Run(ctx) })
	if err := errors.Join(err, stopPeaks()); err != nil {
		return err
	}
	return verify(ctx, s, opt.Rollouts)
}

// enqueue fills the queue.
func enqueue(ctx context.Context, s agl.Store, n int) error {
	if _, err := s.AddResources(ctx, agl.AddResourcesParams{Resources: agl.Resources{
		{Name: "prompt", Resource: agl.PromptTemplate{Template: "Answer {question}", Engine: agl.PromptFString}},
	}}); err != nil {
		return err
	}
	const page = 1000
	for first := 0; first < n; first += page {
		batch := make([]agl.EnqueueRollout, min(page, n-first))
		for i := range batch {
			batch[i] = agl.EnqueueRollout{Input: taskInput(first + i)}
		}
		if _, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: batch}); err != nil {
			return err
		}
	}
	return nil
}

// verify checks that every rollout succeeded with its reward.
func verify(ctx context.Context, s agl.Store, n int) error {
	page, err := s.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}, Paging: agl.Paging{Limit: -1}})
	if err != nil {
		return err
	}
	if len(page.Items) != n {
		return fmt.Errorf("%d of %d rollouts succeeded", len(page.Items), n)
	}
	for _, r := range page.Items {
		spans, err := s.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: r.RolloutID})
		if err != nil {
			return err
		}
		rewarded := slices.ContainsFunc(spans.Items, func(span agl.Span) bool {
			rewards, err := adapter.Rewards(&span)
			return err == nil && len(rewards) == 1 && rewards[0].Value == 1
		})
		if !rewarded {
			return fmt.Errorf("rollout %s has no reward of 1", r.RolloutID)
		}
	}
	return nil
}
