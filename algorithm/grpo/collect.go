package grpo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
)

// group is the rollouts of one task.
type group []sample

// sample is what one rollout gives.
type sample struct {
	form       string
	reward     float64
	mask       algorithm.Mask // empty when the rollout counts
	spans      int
	calls      int // to the model
	continued  int // calls that extend an earlier one
	mismatches int // calls that do not extend the one before
	truncated  bool
	sequences  []adapter.Trajectory
	lack       algorithm.Lack
}

// rolloutTag is the metadata of a training rollout.
type rolloutTag struct {
	Algorithm string `json:"algorithm"`
	Run       string `json:"run"`
	Step      int    `json:"step"`
	Group     int    `json:"group"`
	Sample    int    `json:"sample"`
	Index     int    `json:"index"` // algorithm.MetadataIndex
	Seed      uint64 `json:"seed"`  // algorithm.MetadataSeed
}

// collect runs the rollouts of a step and reads them as they finish. The groups
// are in the order of the tasks, whatever the order in which they finished.
func (r *run) collect(ctx context.Context, step int) ([]group, time.Duration, error) {
	start := time.Now()
	tasks, err := r.source.Next(ctx, r.cfg.PromptsPerStep)
	if err != nil {
		return nil, 0, fmt.Errorf("next tasks: %w", err)
	}
	if len(tasks) == 0 {
		return nil, 0, invalid("the source handed out no tasks")
	}
	rollouts, err := r.trainRollouts(step, tasks)
	if err != nil {
		return nil, 0, err
	}
	groups := make([]group, len(tasks))
	done := 0
	for finished, err := range algorithm.Rollouts(ctx, algorithm.Batch{
		Store: r.in.Store, Rollouts: rollouts, GroupSize: r.cfg.GroupSize, Flusher: r.cfg.Flusher, Logger: r.cfg.Logger,
	}) {
		if err != nil {
			return nil, 0, err
		}
		members := make(group, len(finished.Episodes))
		for i := range finished.Episodes {
			members[i] = r.read(ctx, tasks[finished.Index].Input, &finished.Episodes[i])
		}
		groups[finished.Index] = members
		done += len(members)
		r.cfg.Progress.OnRollouts(PhaseTrain, step, done, len(rollouts))
	}
	var lacks []algorithm.Lack
	for _, s := range slices.Concat(groups...) {
		lacks = append(lacks, s.lack)
	}
	if err := algorithm.Trainable(ctx, "step", lacks, r.cfg.Logger); err != nil {
		return nil, 0, err
	}
	return groups, time.Since(start), nil
}

// trainRollouts describes GroupSize rollouts of each task, group after group.
func (r *run) trainRollouts(step int, tasks []Task) ([]agl.EnqueueRollout, error) {
	rollouts := make([]agl.EnqueueRollout, 0, len(tasks)*r.cfg.GroupSize)
	for g, task := range tasks {
		for s := range r.cfg.GroupSize {
			tag, err := json.Marshal(rolloutTag{
				Algorithm: "grpo", Run: r.state.Run, Step: step, Group: g, Sample: s, Index: task.Index,
				Seed: algorithm.DeriveSeed(r.cfg.Seed, "train", step, g, s),
			})
			if err != nil {
				return nil, fmt.Errorf("rollout metadata: %w", err)
			}
			config := r.cfg.Rollout
			rollouts = append(rollouts, agl.EnqueueRollout{
				Input: task.Input, Mode: agl.ModeTrain, ResourcesID: agl.Some(r.state.ResourcesID), Config: &config, Metadata: tag,
			})
		}
	}
	return rollouts, nil
}

// read turns a finished rollout into a sample.
func (r *run) read(ctx context.Context, task jsontext.Value, e *algorithm.Episode) sample {
	s := sample{spans: len(e.Spans)}
	if r.cfg.Form != nil {
		s.form = r.cfg.Form(task)
	}
	if s.mask = e.Failure(); s.mask != "" {
		return s
	}
	merged, err := r.cfg.Adapter.Adapt(e.Spans)
	if err != nil {
		r.cfg.Logger.WarnContext(ctx, "a trace cannot be read; the rollout is masked", "rollout_id", e.Rollout.RolloutID, "error", err)
		s.mask = algorithm.MaskMalformed
		return s
	}
	s.reward, s.mask = e.Credit(merged.Reward)
	s.calls, s.continued, s.mismatches = merged.Report.Calls, merged.Report.Continued, len(merged.Report.Mismatches)
	s.sequences = merged.Trajectories
	s.truncated = truncated(s.sequences)
	s.lack = algorithm.LackOf(e.Rollout.RolloutID, merged.Report, true)
	if s.mask == "" && s.lack.Lacking > 0 {
		s.mask = algorithm.MaskMalformed
	}
	for _, t := range s.sequences {
		// A datum is one shorter: the last token is only predicted.
		if s.mask == "" && r.context > 0 && len(t.TokenIDs)-1 > r.context {
			s.mask = algorithm.MaskTooLong
		}
	}
	return s
}

// truncated reports whether a reply was cut because it, or the context, was full.
func truncated(sequences []adapter.Trajectory) bool {
	for _, t := range sequences {
		for _, reply := range t.Replies {
			if reply.FinishReason == "length" || reply.FinishReason == "max_tokens" {
				return true
			}
		}
	}
	return false
}
