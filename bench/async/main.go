// Command async measures the effect of sampling ahead of training: the calculator example with a tool of log-normal latency, at
// several bounds of staleness, each with the same seeds. It prints the wall time, the trainer's idle time, the age of the tokens,
// the share of tokens in no loss, the pass rate on held-out questions with the interval of its difference from the first bound, and
// whether slow tasks were trained on as often as others.
package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/examples/calculator/recipe"
)

type options struct {
	Calculator string        `default:"./calculator" help:"The example's binary (go build ./examples/calculator)." placeholder:"FILE"`
	Staleness  []int         `default:"0,1,2,4,8" help:"The bounds."`
	Seeds      int           `default:"3" help:"Runs of each, with the seeds from 1."`
	Steps      int           `default:"60" help:"Steps of reinforcement learning, 128 rollouts each."`
	Runners    int           `default:"128" help:"Rollouts that run at once."`
	Tool       time.Duration `default:"50ms" help:"The median latency of the tool."`
	Trainer    time.Duration `default:"0" help:"The time that a step of training takes beside the computation. Where it takes longer than sampling, the trainer is not to wait."`
}

func main() {
	bench.Main("async", "Measures sampling ahead of training on the calculator example with a slow tool.", run)
}

// result is the result of one run.
type result struct {
	seconds float64 // of the steps, without validations
	idle    float64 // share of these in which the trainer waited
	mean    float64 // staleness of the tokens
	oldest  int
	unused  float64 // share of the tokens
	passed  float64
	bins    []int // see binsOf; nil if every group that began was trained on
}

func run(ctx context.Context, opt options) error {
	if opt.Seeds < 1 || opt.Seeds > len(student)+1 {
		return fmt.Errorf("--seeds: got %d, must be from 1 to %d", opt.Seeds, len(student)+1)
	}
	fmt.Printf("| max_staleness | seconds | of synchronous | trainer waits | staleness | oldest | unused tokens | pass rate | difference, 95 %% interval | slow tasks: χ², p |\n|---|---|---|---|---|---|---|---|---|---|\n")
	base := map[int]result{} // of the first bound, by seed
	for _, staleness := range opt.Staleness {
		var seconds, ratio, idle, mean, unused, passed []float64
		var differences []float64
		bins := make([]int, durations)
		oldest := 0
		for seed := 1; seed <= opt.Seeds; seed++ {
			r, err := measure(ctx, opt, staleness, seed)
			if err != nil {
				return err
			}
			if _, ok := base[seed]; !ok {
				base[seed] = r
			}
			seconds, ratio, idle = append(seconds, r.seconds), append(ratio, r.seconds/base[seed].seconds), append(idle, r.idle)
			differences = append(differences, r.passed-base[seed].passed)
			for i, n := range r.bins {
				bins[i] += n
			}
			mean, unused, passed = append(mean, r.mean), append(unused, r.unused), append(passed, r.passed)
			oldest = max(oldest, r.oldest)
		}
		fmt.Printf("| %d | %.1f | %.2f | %.0f %% | %.2f | %d | %.2f %% | %.3f %.3f | %s | %s |\n", staleness, bench.Median(seconds), bench.Median(ratio),
			100*bench.Median(idle), bench.Median(mean), oldest, 100*bench.Median(unused), bench.Median(passed), passed, interval(differences), starvation(bins))
	}
	return nil
}

// student has the 0.975 quantiles of Student's distribution with 1, 2, … degrees of freedom.
var student = [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093}

// interval returns the mean of the differences of the same seeds, with its 95 % interval.
func interval(differences []float64) string {
	mean, half := bench.MeanError(differences)
	if half == 0 {
		return fmt.Sprintf("%+.3f", mean)
	}
	half *= student[len(differences)-2]
	return fmt.Sprintf("%+.3f (%+.3f to %+.3f)", mean, mean-half, mean+half)
}

// durations is the number of equally likely bins of how long a group takes. It is odd, so that the p of χ² is a short sum.
const durations = 11

// starvation returns χ² of the groups that were trained on, by how long they take, and the probability of a χ² at least as high if the
// duration did not matter.
func starvation(bins []int) string {
	total := 0
	for _, n := range bins {
		total += n
	}
	if total == 0 {
		return "–"
	}
	expected, chi := float64(total)/durations, 0.0
	for _, n := range bins {
		chi += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	p, term := 0.0, math.Exp(-chi/2)
	for i := range (durations - 1) / 2 { // Q(k/2, χ²/2) for an even k
		p += term
		term *= chi / 2 / float64(i+1)
	}
	return fmt.Sprintf("%.1f, %.2f", chi, p)
}

// binsOf reads from the checkpoints of a run which groups were trained on while others were still under way, and counts them by how long
// they take. It returns nil if there is no such checkpoint. Only the first half of the groups counts: of the groups that are under way at some
// time, more are slow ones than of all groups, so leaving these out would make slow groups seem rare. One of the first half that was still
// not trained on is missing from the count.
func binsOf(dir string, seed uint64) ([]int, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "checkpoint-*.json"))
	if err != nil || len(paths) < 2 {
		return nil, err
	}
	slices.Sort(paths)
	data, err := os.ReadFile(paths[len(paths)-2])
	if err != nil {
		return nil, err
	}
	var file struct {
		State struct {
			Async struct {
				Accounts admission.State `json:"accounts"`
			} `json:"async"`
		} `json:"state"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	accounts := file.State.Async.Accounts
	if accounts.Admitted == 0 {
		return nil, nil
	}
	waiting := map[int]bool{}
	for _, g := range slices.Concat(accounts.Ready, accounts.Open) {
		waiting[g.ID] = true
	}
	bins := make([]int, durations)
	for id := range accounts.Admitted / 2 {
		if waiting[id] {
			continue
		}
		slowest := 0.0 // rollout
		for sample := range recipe.GroupSize {
			rollout := algorithm.DeriveSeed(seed, "train", id/recipe.PromptsPerStep+1, id%recipe.PromptsPerStep, sample)
			slowest = max(slowest, recipe.ToolLatency(int64(rollout)+2))
		}
		// The probability that a rollout takes less, and that all of the group do.
		less := 0.5 * math.Erfc(-math.Log(slowest)/recipe.ToolSigma/math.Sqrt2)
		bins[min(int(durations*math.Pow(less, recipe.GroupSize)), durations-1)]++
	}
	return bins, nil
}

func measure(ctx context.Context, opt options, staleness, seed int) (r result, err error) {
	dir, err := os.MkdirTemp("", "async")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	summary := filepath.Join(dir, "summary.json")
	cmd := exec.CommandContext(ctx, opt.Calculator, "--seed", strconv.Itoa(seed), "--steps", strconv.Itoa(opt.Steps), "--runners", strconv.Itoa(opt.Runners),
		"--tool", opt.Tool.String(), "--trainer", opt.Trainer.String(), "--staleness", strconv.Itoa(staleness), "--out", filepath.Join(dir, "run"), "--summary", summary)
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
	if r.bins, err = binsOf(filepath.Join(dir, "run", "grpo", "checkpoints"), uint64(seed)); err != nil {
		return r, err
	}
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
