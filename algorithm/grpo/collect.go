package grpo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
)

// collector runs the rollouts of steps.
type collector struct {
	cfg     Config
	session *algorithm.Session
	source  Source
	context int // of the model, in tokens; 0 is unknown
}

// collect runs the rollouts of a step and reads them as they finish. The groups are in the order of the tasks.
func (c *collector) collect(ctx context.Context, step int) ([]taskGroup, time.Duration, error) {
	start := time.Now()
	tasks, err := c.source.Next(ctx, c.cfg.PromptsPerStep)
	if err != nil {
		return nil, 0, fmt.Errorf("next tasks: %w", err)
	}
	if len(tasks) == 0 {
		return nil, 0, agl.Errorf(agl.CodeInvalid, "the source returned no tasks")
	}
	rollouts, err := c.rollouts(step, tasks)
	if err != nil {
		return nil, 0, err
	}
	groups := make([]taskGroup, len(tasks))
	for finished, err := range c.session.Rollouts(ctx, step, rollouts, c.cfg.GroupSize) {
		if err != nil {
			return nil, 0, err
		}
		members := make(taskGroup, len(finished.Episodes))
		for i := range finished.Episodes {
			members[i] = c.read(ctx, tasks[finished.Index].Input, &finished.Episodes[i])
		}
		groups[finished.Index] = members
	}
	var coverage []algorithm.Coverage
	for _, s := range slices.Concat(groups...) {
		coverage = append(coverage, s.coverage)
	}
	if err := algorithm.CheckCoverage(ctx, "step", coverage, c.cfg.Logger); err != nil {
		return nil, 0, err
	}
	return groups, time.Since(start), nil
}

// rollouts describes GroupSize rollouts of each task, group by group.
func (c *collector) rollouts(step int, tasks []Task) ([]agl.EnqueueRollout, error) {
	rollouts := make([]agl.EnqueueRollout, 0, len(tasks)*c.cfg.GroupSize)
	for g, task := range tasks {
		for s := range c.cfg.GroupSize {
			r, err := c.session.Rollout(task.Input, agl.ModeTrain, c.session.ResourcesID, algorithm.Tag{
				Step: step, Group: g, Sample: s, Index: task.Index, Seed: algorithm.DeriveSeed(c.cfg.Seed, "train", step, g, s),
			})
			if err != nil {
				return nil, err
			}
			rollouts = append(rollouts, r)
		}
	}
	return rollouts, nil
}

// read converts a finished rollout to a sample.
func (c *collector) read(ctx context.Context, task jsontext.Value, e *algorithm.Episode) sample {
	s := sample{spans: len(e.Spans)}
	if c.cfg.Form != nil {
		s.form = c.cfg.Form(task)
	}
	if s.mask = e.Failure(); s.mask != "" {
		return s
	}
	merged, err := c.cfg.Adapter.Adapt(e.Spans)
	if err != nil {
		c.cfg.Logger.WarnContext(ctx, "a trace cannot be read; the rollout is masked", "rollout_id", e.Rollout.RolloutID, "error", err)
		s.mask = algorithm.MaskMalformed
		return s
	}
	s.reward, s.mask = e.Credit(merged.Reward)
	s.calls, s.continued, s.mismatches = merged.Report.Calls, merged.Report.Continued, len(merged.Report.Mismatches)
	s.sequences = merged.Trajectories
	if s.turns, err = turnsOf(e.Spans, s.sequences, c.cfg.Discount); err != nil {
		c.cfg.Logger.WarnContext(ctx, "a reward cannot be read; the rollout is masked", "rollout_id", e.Rollout.RolloutID, "error", err)
		s.mask = algorithm.MaskMalformed
		return s
	}
	s.truncated = hasTruncated(s.sequences)
	s.coverage = algorithm.CoverageOf(e.Rollout.RolloutID, merged.Report, true)
	if s.mask == "" && s.coverage.Missing > 0 {
		s.mask = algorithm.MaskMalformed
	}
	for _, t := range s.sequences {
		// A datum is one token shorter: the last one is only a target.
		if s.mask == "" && c.context > 0 && len(t.TokenIDs)-1 > c.context {
			s.mask = algorithm.MaskTooLong
		}
	}
	return s
}

// hasTruncated reports whether a reply ended at its token limit or that of the context.
func hasTruncated(sequences []adapter.Trajectory) bool {
	for _, t := range sequences {
		for _, reply := range t.Replies {
			if reply.FinishReason == "length" || reply.FinishReason == "max_tokens" {
				return true
			}
		}
	}
	return false
}
