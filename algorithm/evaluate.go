package algorithm

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// Names of rollout metadata that algorithms set.
const (
	// MetadataSeed is a number in [0, 2⁵³) that is a function of the run's seed
	// and the rollout's place in the run: an agent that samples with it makes a
	// run repeatable.
	MetadataSeed = "seed"
	// MetadataIndex is the task's place in its dataset.
	MetadataIndex = "index"
)

// Evaluation is the arguments of [Evaluate].
type Evaluation struct {
	// Store is where the rollouts are run. Required.
	Store agl.Store
	// Flusher, if there is one, is called before spans are read.
	Flusher Flusher
	// Tasks are what is tried, each once. Required.
	Tasks agl.Dataset
	// N tries only the first N tasks; zero means all.
	N int
	// ResourcesID names the resources to run with; null means the latest. See
	// [WithSampling] for other sampling parameters than training's.
	ResourcesID agl.Null[string]
	// Mode of the rollouts; empty means val.
	Mode agl.Mode
	// Rollout bounds each attempt. Its zero value is one attempt without any limit.
	Rollout agl.RolloutConfig
	// Metadata, an object, is what each rollout's metadata begins with.
	Metadata jsontext.Value
	// Seed decides the [MetadataSeed] of each rollout.
	Seed uint64
	// PassReward is the reward from which on a task counts as passed; zero means 1.
	PassReward float64
	// Form names the form of a task for the breakdown; nil or an empty name leaves it out.
	Form func(task jsontext.Value) string
	// Progress is called as rollouts finish, never concurrently; nil does nothing.
	Progress func(done, total int)
	// Logger is for what goes wrong beside the point; nil discards it.
	Logger *slog.Logger
}

// Report is the result of [Evaluate]. Rollouts that are masked count nowhere
// but in Masked.
type Report struct {
	Rate
	RewardMean float64         `json:"reward_mean"`
	Masked     map[Mask]int    `json:"masked"`
	Forms      map[string]Rate `json:"forms,omitzero"`
	// Results has one element per task, in the order of the dataset.
	Results []Result `json:"-"`
}

// Result is what became of one task.
type Result struct {
	RolloutID string
	Task      jsontext.Value
	Form      string
	Reward    float64 // 0 when masked
	Mask      Mask    // empty when the reward counts
	Passed    bool
}

// evaluationGroup is how many rollouts are read together: enough to save
// requests, few enough for smooth progress.
const evaluationGroup = 8

// Evaluate runs each task once through the store, as training does, and reports
// how many passed. It needs runners that take the rollouts.
func Evaluate(ctx context.Context, e Evaluation) (Report, error) {
	tasks, err := e.tasks()
	if err != nil {
		return Report{}, err
	}
	batch := Batch{
		Store: e.Store, Rollouts: e.rollouts(tasks), GroupSize: evaluationGroup, Flusher: e.Flusher, Logger: e.Logger,
	}
	results := make([]Result, len(tasks))
	done := 0
	for group, err := range Rollouts(ctx, batch) {
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

func (e Evaluation) tasks() ([]jsontext.Value, error) {
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

func (e Evaluation) rollouts(tasks []jsontext.Value) []agl.EnqueueRollout {
	mode := e.Mode
	if mode == agl.ModeNone {
		mode = agl.ModeVal
	}
	rollouts := make([]agl.EnqueueRollout, len(tasks))
	for i, task := range tasks {
		meta := rawjson.Set(e.Metadata, MetadataIndex, strconv.AppendInt(nil, int64(i), 10))
		meta = rawjson.Set(meta, MetadataSeed, strconv.AppendUint(nil, DeriveSeed(e.Seed, "evaluate", i), 10))
		config := e.Rollout
		rollouts[i] = agl.EnqueueRollout{Input: task, Mode: mode, ResourcesID: e.ResourcesID, Config: &config, Metadata: meta}
	}
	return rollouts
}

func (e Evaluation) result(task jsontext.Value, episode *Episode) Result {
	r := Result{RolloutID: episode.Rollout.RolloutID, Task: task}
	if e.Form != nil {
		r.Form = e.Form(task)
	}
	r.Reward, r.Mask = episode.Score()
	r.Passed = r.Mask == "" && r.Reward >= e.passReward()
	return r
}

func (e Evaluation) passReward() float64 {
	if e.PassReward == 0 {
		return 1
	}
	return e.PassReward
}

func (e Evaluation) report(results []Result) Report {
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
	return report
}
