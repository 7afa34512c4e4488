//go:build unix

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/test/process"
)

// TestKilledTwentyTimes kills a run with SIGKILL 20 times at random, while it starts, samples, trains, publishes or saves. It ends with the
// counts of a run that was left alone; one that samples only what it trains on next ends with its facts, to the last digit of the loss.
func TestKilledTwentyTimes(t *testing.T) {
	t.Parallel()
	for name, async := range map[string]string{
		"synchronous": "", "ahead": ", async: {max_staleness: 2, on_stale: wait, min_viable: 4}", "pinned": ", minibatches: 3, async: {max_staleness: 2, on_stale: wait, pin: rollout, minibatches: 3}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const kills, steps = 20, 90
			file := runFile(t, agentAsks, 8, fmt.Sprintf(`engine: {policy: {layers: 1, dim: 16, heads: 1, ff: 16}}
algorithm: {grpo: {steps: %d, prompts_per_step: 3, group_size: 4, checkpoint_every: 1%s}}`, steps, async))
			whole, killed := filepath.Join(process.Dir(t), "whole"), filepath.Join(process.Dir(t), "killed")
			metrics := filepath.Join(killed, "metrics.jsonl")
			startTrain(t, file, "--output", whole).end(t, 0)
			random := rand.New(rand.NewPCG(1, uint64(len(name))))
			// However late the kills come on a busy machine, the run does not end before the last one.
			const near = steps - 10
			leave := stayAt(t, file, metrics, near)
			run := startTrain(t, file, "--output", killed)
			for range kills {
				// The next line is the end of a step; a moment later the run is somewhere in the next ones.
				lines := min(len(readLines(t, metrics))+random.IntN(3), near)
				eventually(t, "metrics", func() bool { return len(readLines(t, metrics)) >= lines })
				<-time.After(time.Duration(random.Int64N(int64(60 * time.Millisecond)))) // the moment is to be random
				if err := run.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				run.end(t, -1)
				run = startTrain(t, "--resume", killed)
			}
			leave()
			run.end(t, 0)
			if async == "" {
				if want, got := facts(t, filepath.Join(whole, "metrics.jsonl")), facts(t, metrics); !slices.Equal(want, got) {
					t.Errorf("a run left alone:\n%s\nkilled and resumed:\n%s", strings.Join(want, ""), strings.Join(got, ""))
				}
			}
			if want, got := countsOf(t, whole, steps), countsOf(t, killed, steps); want != got {
				t.Errorf("a run left alone: %+v\nkilled and resumed: %+v", want, got)
			}
		})
	}
}

// counts are what a run has counted: in its metrics, and in its last checkpoint.
type counts struct {
	steps, rollouts, groups, calls, masked, dropped int
	checkpoint, total                               int // its step, and the rollouts until then
}

func countsOf(t *testing.T, dir string, steps int) (c counts) {
	t.Helper()
	reports, err := algorithm.ReadLines[grpo.StepReport](filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range reports {
		if r.Step != i+1 || r.Staleness.Max > 2 {
			t.Errorf("line %d is of step %d, with tokens of %d versions ago", i+1, r.Step, r.Staleness.Max)
		}
		c.steps, c.rollouts, c.groups, c.calls = c.steps+1, c.rollouts+r.Rollouts, c.groups+r.Groups, c.calls+r.Calls
		for _, n := range r.Masked {
			c.masked += n
		}
		for _, n := range r.Dropped {
			c.dropped += n
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "checkpoints", fmt.Sprintf("checkpoint-%08d.json", steps)))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Step  int `json:"step"`
		State struct {
			Totals algorithm.Totals `json:"totals"`
		} `json:"state"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	c.checkpoint, c.total = file.Step, file.State.Totals.Rollouts
	return c
}
