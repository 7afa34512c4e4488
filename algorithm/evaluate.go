package algorithm

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/internal/rawjson"
)

// Names of rollout metadata that algorithms set.
const (
	// MetadataSeed is a number in [0, 2⁵³), a function of the run's seed and the
	// rollout's place in the run. A run is repeatable if its agents sample with it.
	MetadataSeed = "seed"
	// MetadataIndex is the task's place in its dataset.
	MetadataIndex = "index"
)

// EvaluateParams are the arguments of [Evaluate].
type EvaluateParams struct {
	// Store runs the rollouts. Required.
	Store agl.Store
	// Flusher is called before spans are read; nil does nothing.
	Flusher Flusher
	// Tasks are run once each. Required.
	Tasks agl.Dataset
	// N runs only the first N tasks; zero runs all.
	N int
	// ResourcesID names the resources of the rollouts; null means the latest. See
	// [WithSampling] for sampling parameters that differ from training.
	ResourcesID agl.Null[string]
	// Rollout limits each attempt. Its zero value is one attempt without limits.
	Rollout agl.RolloutConfig
	// Metadata is an object whose members are added to each rollout's metadata.
	Metadata jsontext.Value
	// Seed decides the [MetadataSeed] of each rollout.
	Seed uint64
	// PassReward is the reward from which a task counts as passed; zero means 1.
	PassReward float64
	// Form names the form of a task, for pass rates by form; nil or an empty name leaves it out.
	Form func(task jsontext.Value) string
	// Progress is called as rollouts finish, one call at a time; nil does nothing.
	Progress func(done, total int)
	// Logger gets failures that do not affect the result; nil discards them.
	Logger *slog.Logger
}

// Report is the result of [Evaluate]. Masked rollouts count in Masked only.
type Report struct {
	Rate
	RewardMean float64 `json:"reward_mean"`
	// Dimensions are the means of the dimensions of the reward, over the tasks whose reward has them, if a reward has several. An
	// agent that failed without a reward has 0 in each.
	Dimensions map[string]float64 `json:"dimensions,omitzero"`
	Masked     map[Mask]int       `json:"masked"`
	Forms      map[string]Rate    `json:"forms,omitzero"`
	// Results has one element per task, in the order of the dataset.
	Results []Result `json:"-"`
}

// Result is that of one task.
type Result struct {
	RolloutID string
	Task      jsontext.Value
	Form      string
	Reward    float64 // 0 if masked
	Mask      Mask    // empty if the reward counts
	Passed    bool

	dimensions []agl.Reward
}

// evaluationGroup is the number of rollouts that are read together: enough to save requests, few enough for smooth progress.
const evaluationGroup = 8

// Evaluate runs each task once through the store, as training does, and returns the
// pass rate. Runners must take the rollouts.
func Evaluate(ctx context.Context, e EvaluateParams) (Report, error) {
	tasks, err := e.tasks()
	if err != nil {
		return Report{}, err
	}
	results := make([]Result, len(tasks))
	done := 0
	for group, err := range Rollouts(ctx, RolloutsParams{
		Store: e.Store, Rollouts: e.rollouts(tasks), GroupSize: evaluationGroup, Flusher: e.Flusher, Logger: e.Logger,
		Read: ReadFor(adapter.Trajectories{}), // for rewards
	}) {
		if err != nil {
			return Report{}, fmt.Errorf("evaluate: %w", err)
		}
		for i := range group.Episodes {
			at := group.Index*evaluationGroup + i
			results[at] = e.result(tasks[at], &group.Episodes[i])
		}
		done += len(group.Episodes)
		if e.Progress != nil {
			e.Progress(done, len(tasks))
		}
	}
	return e.report(results), nil
}

func (e EvaluateParams) tasks() ([]jsontext.Value, error) {
	if e.Store == nil || e.Tasks == nil || e.Tasks.Len() == 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "evaluate: a store and a dataset with at least one task are needed")
	}
	if e.N < 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "evaluate: N is %d, must be 0 (all tasks) or positive", e.N)
	}
	n := e.Tasks.Len()
	if e.N > 0 {
		n = min(n, e.N)
	}
	tasks := make([]jsontext.Value, n)
	for i := range tasks {
		var err error
		if tasks[i], err = e.Tasks.Task(i); err != nil {
			return nil, fmt.Errorf("evaluate: %w", err)
		}
	}
	return tasks, nil
}

func (e EvaluateParams) rollouts(tasks []jsontext.Value) []agl.EnqueueRollout {
	rollouts := make([]agl.EnqueueRollout, len(tasks))
	for i, task := range tasks {
		meta := rawjson.Set(e.Metadata, MetadataIndex, strconv.AppendInt(nil, int64(i), 10))
		meta = rawjson.Set(meta, MetadataSeed, strconv.AppendUint(nil, DeriveSeed(e.Seed, "evaluate", i), 10))
		config := e.Rollout
		rollouts[i] = agl.EnqueueRollout{Input: task, Mode: agl.ModeVal, ResourcesID: e.ResourcesID, Config: &config, Metadata: meta}
	}
	return rollouts
}

func (e EvaluateParams) result(task jsontext.Value, episode *Episode) Result {
	r := Result{RolloutID: episode.Rollout.RolloutID, Task: task}
	if e.Form != nil {
		r.Form = e.Form(task)
	}
	r.dimensions, r.Reward, r.Mask = episode.score()
	r.Passed = r.Mask == "" && r.Reward >= cmp.Or(e.PassReward, 1)
	return r
}

func (e EvaluateParams) report(results []Result) Report {
	report := Report{Masked: map[Mask]int{}, Results: results}
	var tally Tally
	sum := 0.0
	for _, r := range results {
		if r.Mask != "" {
			report.Masked[r.Mask]++
			continue
		}
		sum += r.Reward
		tally.Add(r.Form, r.Passed)
	}
	report.Rate, report.Forms = tally.Total(), tally.Forms()
	if report.N > 0 {
		report.RewardMean = sum / float64(report.N)
	}
	report.Dimensions = dimensionMeans(results)
	return report
}

// dimensionMeans returns the mean of each dimension; nil if no reward has several.
func dimensionMeans(results []Result) map[string]float64 {
	sums, counts := map[string]float64{}, map[string]int{}
	failed, several := 0, false
	for _, r := range results {
		switch {
		case r.Mask != "":
			continue
		case len(r.dimensions) == 0:
			failed++
		}
		several = several || len(r.dimensions) > 1
		for _, d := range r.dimensions {
			sums[d.Name] += d.Value
			counts[d.Name]++
		}
	}
	if !several {
		return nil
	}
	for name := range sums {
		sums[name] /= float64(counts[name] + failed)
	}
	return sums
}
