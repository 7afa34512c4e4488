// Command async measures what it brings to sample ahead of training: the calculator example with a tool of log-normal latency, at
// several bounds of staleness, the same seeds each. It prints wall time, the trainer's idle time, the age of the tokens, the tokens
// in no loss, and the pass rate on held-out questions.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/bench/internal/bench"
)

type options struct {
	Calculator string        `default:"./calculator" help:"The example's binary (go build ./examples/calculator)." placeholder:"FILE"`
	Staleness  []int         `default:"0,1,2,4,8" help:"The bounds."`
	Seeds      int           `default:"3" help:"Runs of each, with the seeds from 1."`
	Steps      int           `default:"120" help:"Steps of reinforcement learning, 128 rollouts each."`
	Runners    int           `default:"128" help:"Rollouts that run at once."`
	Tool       time.Duration `default:"50ms" help:"The median latency of the tool."`
}

func main() {
	var opt options
	bench.Main("async", "Measures sampling ahead of training on the calculator example with a slow tool.", &opt, func(ctx context.Context) error { return run(ctx, opt) })
}

// result is what one run gave.
type result struct {
	seconds float64 // of the steps, without validations
	idle    float64 // share of these in which the trainer waited
	mean    float64 // staleness of the tokens
	oldest  int
	unused  float64 // share of the tokens
	passed  float64
}

func run(ctx context.Context, opt options) error {
	fmt.Printf("| max_staleness | seconds | of synchronous | trainer waits | staleness | oldest | unused tokens | pass rate |\n|---|---|---|---|---|---|---|---|\n")
	base := map[int]float64{} // seconds of the first bound by seed
	for _, staleness := range opt.Staleness {
		var seconds, ratio, idle, mean, unused, passed []float64
		oldest := 0
		for seed := 1; seed <= opt.Seeds; seed++ {
			r, err := measure(ctx, opt, staleness, seed)
			if err != nil {
				return err
			}
			if _, ok := base[seed]; !ok {
				base[seed] = r.seconds
			}
			seconds, ratio, idle = append(seconds, r.seconds), append(ratio, r.seconds/base[seed]), append(idle, r.idle)
			mean, unused, passed = append(mean, r.mean), append(unused, r.unused), append(passed, r.passed)
			oldest = max(oldest, r.oldest)
		}
		fmt.Printf("| %d | %.1f | %.2f | %.0f %% | %.2f | %d | %.2f %% | %.3f %.3f |\n", staleness, bench.Median(seconds), bench.Median(ratio),
			100*bench.Median(idle), bench.Median(mean), oldest, 100*bench.Median(unused), bench.Median(passed), passed)
	}
	return nil
}

func measure(ctx context.Context, opt options, staleness, seed int) (r result, err error) {
	dir, err := os.MkdirTemp("", "async")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	summary := filepath.Join(dir, "summary.json")
	cmd := exec.CommandContext(ctx, opt.Calculator, "--seed", strconv.Itoa(seed), "--steps", strconv.Itoa(opt.Steps), "--runners", strconv.Itoa(opt.Runners),
		"--tool", opt.Tool.String(), "--staleness", strconv.Itoa(staleness), "--out", filepath.Join(dir, "run"), "--summary", summary)
	if output, err := cmd.CombinedOutput(); err != nil {
		return r, fmt.Errorf("%s: %w\n%s", opt.Calculator, err, output)
	}
	doc, err := os.ReadFile(summary)
	if err != nil {
		return r, err
	}
	var end struct {
		After algorithm.Rate `json:"after"`
	}
	if err := json.Unmarshal(doc, &end); err != nil {
		return r, err
	}
	r.passed = end.After.PassRate
	steps, err := algorithm.ReadLines[grpo.StepReport](filepath.Join(dir, "run", "grpo", "metrics.jsonl"))
	if err != nil {
		return r, err
	}
	tokens, unused, waited, trained := 0, 0, 0.0, 0
	for _, s := range steps {
		if s.Step == 0 {
			continue
		}
		r.seconds += s.Seconds.Total - s.Seconds.Validate
		waited += s.Seconds.Rollouts
		r.mean += s.Staleness.Mean * float64(s.ResponseTokens)
		r.oldest = max(r.oldest, s.Staleness.Max)
		tokens, unused, trained = tokens+s.ResponseTokens, unused+s.UnusedTokens, trained+s.Rollouts
	}
	if tokens == 0 || r.seconds == 0 {
		return r, fmt.Errorf("%s: no tokens were sampled", opt.Calculator)
	}
	r.idle, r.mean, r.unused = waited/r.seconds, r.mean/float64(tokens), float64(unused)/float64(tokens+unused)
	return r, nil
}
