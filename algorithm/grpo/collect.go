package grpo

import (
	"cmp"
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
	if err := checkPolicy(slices.Concat(groups...)); err != nil {
		return nil, 0, err
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
	merged, err := c.adapter().Adapt(e.Spans)
	if err != nil {
		c.cfg.Logger.WarnContext(ctx, "a trace cannot be read; the rollout is masked", "rollout_id", e.Rollout.RolloutID, "error", err)
		s.mask = algorithm.MaskMalformed
		return s
	}
	s.reward, s.mask = e.Credit(merged.Reward)
	s.calls, s.continued, s.mismatches = merged.Report.Calls, merged.Report.Continued, len(merged.Report.Mismatches)
	s.sequences, s.others = merged.Trajectories, len(merged.Report.Others)
	if mask, why := c.offPolicy(merged); mask != "" {
		c.cfg.Logger.WarnContext(ctx, "a call cannot be trained on; the rollout is masked", "rollout_id", e.Rollout.RolloutID, "reason", mask, "call", why)
		s.mask, s.offPolicy = mask, why
		return s
	}
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

// adapter returns the adapter of the configuration; the usual one merges only the calls of the model in training.
func (c *collector) adapter() agl.Adapter[adapter.Merged] {
	usual, ok := c.cfg.Adapter.(adapter.Trajectories)
	if !ok || usual.Keep != nil {
		return c.cfg.Adapter
	}
	usual.Keep = func(call adapter.Call) bool { return c.session.Calls.Owner(call) != algorithm.OwnerOther }
	return usual
}

// offPolicy returns why a rollout must not be trained on: a call whose tokens are not samples of weights of the run, or whose
// log-probabilities are not those of the samples.
func (c *collector) offPolicy(merged adapter.Merged) (mask algorithm.Mask, why string) {
	for _, t := range merged.Trajectories {
		for _, reply := range t.Replies {
			switch owner := c.session.Calls.Owner(reply.Call); {
			case owner == algorithm.OwnerWrongVersion:
				return algorithm.MaskVersion, fmt.Sprintf("span %s was answered by version %q", reply.SpanID, cmp.Or(reply.VersionEnd, reply.Version))
			case owner == algorithm.OwnerOther:
				return algorithm.MaskMalformed, fmt.Sprintf("span %s is of the model %q", reply.SpanID, reply.Model)
			case reply.Sampling != "" && !c.cfg.ProcessedLogprobs:
				return algorithm.MaskSampling, reply.Sampling
			}
		}
	}
	return "", ""
}

// checkPolicy returns agl.ErrIllegalState if every rollout of a step that got to the model is masked by offPolicy: the next
// step would be the same.
func checkPolicy(samples []sample) error {
	why, masked, others := "", 0, 0
	for _, s := range samples {
		switch {
		case s.offPolicy != "":
			masked++
			why = string(s.mask) + ", " + s.offPolicy
		case s.calls > 0:
			others++
		}
	}
	if masked == 0 || others > 0 {
		return nil
	}
	return agl.Errorf(agl.CodeIllegalState, "none of the %d rollouts of the step can be trained on (%s): agents must sample the model in training at temperature 1, with neither top_p, top_k, min_p nor penalties, "+
		"from the weights that the run has published; if the engine returns the log-probabilities of what it sampled from, set processed_logprobs", masked, why)
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
