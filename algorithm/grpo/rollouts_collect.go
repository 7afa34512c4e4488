package grpo

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
)

// collector describes rollouts and reads them when they are done.
type collector struct {
	cfg     Config
	session *algorithm.Session
	source  Source
	roles   []*trainee // the first is that of cfg
	unknown bool       // a live run has warned of a version that it does not know
}

// rollouts describes the rollouts [from, before) of a group. Their seeds depend on their places in the group and on the place of the group
// in the run.
func (c *collector) rollouts(g admission.Group, task Task, resources string, from, before int) ([]agl.EnqueueRollout, error) {
	rollouts := make([]agl.EnqueueRollout, before-from)
	step, group := g.ID/c.cfg.PromptsPerStep+1, g.ID%c.cfg.PromptsPerStep
	for i := range rollouts {
		var err error
		s := from + i
		if rollouts[i], err = c.session.Rollout(task.Input, agl.ModeTrain, resources, algorithm.Tag{
			Step: g.Version + 1, Group: group, Sample: s, Index: task.Index, Seed: algorithm.DeriveSeed(c.cfg.Seed, "train", step, group, s),
		}); err != nil {
			return nil, err
		}
	}
	return rollouts, nil
}

// read converts a finished rollout to a sample of each role.
func (c *collector) read(ctx context.Context, task jsontext.Value, e *algorithm.Episode) sample {
	first := c.readRole(ctx, c.roles[0], task, e)
	for _, role := range c.roles[1:] {
		first.peers = append(first.peers, c.readRole(ctx, role, task, e))
	}
	return first
}

// spansOf counts the spans of an attempt. A run that resumes also finds those with what steps that were lost had computed of it.
func spansOf(e *algorithm.Episode) (n int) {
	for i := range e.Spans {
		if e.Spans[i].Name != agl.SpanTraining {
			n++
		}
	}
	return n
}

// readRole converts a finished rollout to the sample of one role: the role's calls and reward.
func (c *collector) readRole(ctx context.Context, role *trainee, task jsontext.Value, e *algorithm.Episode) sample {
	s := sample{id: e.Rollout.RolloutID, spans: spansOf(e), failed: e.Outcome.Kind == agl.OutcomeAgentError}
	if e.Attempt != nil {
		s.attempt = e.Attempt.AttemptID
	}
	if c.cfg.Form != nil {
		s.form = c.cfg.Form(task)
	}
	if s.mask = e.Failure(); s.mask != "" {
		if merged, err := algorithm.Adapt(c.adapter(role), e); err == nil { // without a readable trace there are no tokens to count
			s.lostTokens = sample{sequences: merged.Trajectories}.sampled()
		}
		return s
	}
	merged, err := algorithm.Adapt(c.adapter(role), e)
	if err == nil && role.reward != "" {
		merged.Reward, s.dimensions, err = finalDimension(e.Spans, role.reward)
	}
	if err != nil {
		c.cfg.Logger.WarnContext(ctx, "a trace cannot be read; the rollout is masked", "rollout_id", e.Rollout.RolloutID, "error", err)
		s.mask = algorithm.MaskMalformed
		return s
	}
	s.reward, s.mask = e.Credit(merged.Reward)
	s.calls, s.continued, s.mismatches = merged.Report.Calls, merged.Report.Continued, len(merged.Report.Mismatches)
	s.sequences, s.others = merged.Trajectories, len(merged.Report.Others)
	if mask, why := c.offPolicy(role, merged, e.Rollout.ResourcesID.V); mask != "" {
		level, message := slog.LevelWarn, "a call cannot be trained on; the rollout is masked"
		if c.cfg.Live != nil && mask == algorithm.MaskVersion { // as in thousands of rollouts after a restart
			if c.unknown {
				level = slog.LevelDebug
			}
			c.unknown = true
			message = "a call was answered by weights that were rolled back, or that the run does not know, such as old ones after a restart; " +
				"rollouts like this one are only counted, as stale"
		}
		c.cfg.Logger.Log(ctx, level, message, "rollout_id", e.Rollout.RolloutID, "reason", mask, "error", why)
		s.mask, s.offPolicy = mask, why
		return s
	}
	if s.turns, err = turnsOf(e.Spans, s.sequences, c.cfg.Discount, role.reward); err != nil {
		c.cfg.Logger.WarnContext(ctx, "a reward cannot be read; the rollout is masked", "rollout_id", e.Rollout.RolloutID, "error", err)
		s.mask = algorithm.MaskMalformed
		return s
	}
	c.cfg.Overlong.punish(s.turns, s.sequences, c.cfg.Discount)
	s.overlong = c.cfg.Overlong.worst(s.sequences)
	s.truncated = hasTruncated(s.sequences)
	s.coverage = algorithm.CoverageOf(e.Rollout.RolloutID, merged, true)
	if s.mask == "" && s.coverage.Missing > 0 {
		s.mask = algorithm.MaskMalformed
	}
	for _, t := range s.sequences {
		// A datum is one token shorter: the last one is only a target.
		if s.mask == "" && role.context > 0 && len(t.TokenIDs)-1 > role.context {
			s.mask = algorithm.MaskTooLong
		}
	}
	return s
}

// adapter returns Config.Adapter; adapter.Trajectories, the default, then merges only the calls of the role.
func (c *collector) adapter(role *trainee) agl.Adapter[adapter.Merged] {
	usual, ok := c.cfg.Adapter.(adapter.Trajectories)
	if !ok || usual.Keep != nil {
		return c.cfg.Adapter
	}
	usual.Keep = func(call adapter.Call) bool { return role.calls.Owner(call) != algorithm.OwnerOther }
	return usual
}

// offPolicy returns why a rollout must not be trained on: a call whose tokens are not samples of weights of the run, or whose
// log-probabilities are not those of the samples. resources are those with which it was enqueued.
func (c *collector) offPolicy(role *trainee, merged adapter.Merged, resources string) (mask algorithm.Mask, why string) {
	for _, t := range merged.Trajectories {
		for _, reply := range t.Replies {
			switch owner := role.calls.Owner(reply.Call); {
			case owner == algorithm.OwnerWrongVersion:
				return algorithm.MaskVersion, fmt.Sprintf("a call was answered by version %q", cmp.Or(reply.VersionEnd, reply.Version))
			case owner == algorithm.OwnerOther:
				return algorithm.MaskMalformed, fmt.Sprintf("a call is of the model %q", reply.Model)
			case c.unasked(role, reply.Call, resources):
				return algorithm.MaskVersion, fmt.Sprintf("a call was answered by version %q, but the rollout was enqueued with %q, and async.pin is %q",
					cmp.Or(reply.VersionEnd, reply.Version), role.version(resources), c.cfg.Async.Pin)
			case reply.Sampling != "" && !c.cfg.ProcessedLogprobs:
				return algorithm.MaskSampling, reply.Sampling
			}
		}
	}
	return "", ""
}

// unasked reports whether a call was answered by a version that the rollout must not get. With PinRollout, it must get the version that
// it was enqueued with, otherwise that or a later one. A live run, which enqueues no rollouts, accepts any.
func (c *collector) unasked(role *trainee, call adapter.Call, resources string) bool {
	switch asked := role.version(resources); {
	case c.cfg.Live != nil:
		return false
	case c.cfg.Async.Pin == PinRollout:
		return call.Version != asked || call.VersionEnd != "" && call.VersionEnd != asked
	default:
		least, known := role.calls.Generation(asked)
		began, answered := role.calls.Generation(call.Version)
		return known && answered && began < least
	}
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

// checkReward returns agl.ErrIllegalState if every reward of a step lacks the dimension of a role: it is misspelled, or the agent does
// not know it.
func checkReward(role *trainee, samples []sample) error {
	lacking := 0
	var known []string
	for _, s := range samples {
		switch {
		case slices.Contains(s.dimensions, role.reward):
			return nil
		case len(s.dimensions) > 0:
			lacking++
			known = append(known, s.dimensions...)
		}
	}
	if lacking == 0 {
		return nil
	}
	slices.Sort(known)
	return agl.Errorf(agl.CodeIllegalState, "no reward of the step has the dimension %q, from which the role learns; the agent's rewards have %q", role.reward, slices.Compact(known))
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
