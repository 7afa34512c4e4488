package grpo

import (
	"fmt"

	"github.com/agl-go/agl/algorithm"
)

// The kinds of warnings.
const (
	// WarnNoVariance: no group of a step had an advantage, or no calls that can be learned from, although not every rollout passed.
	WarnNoVariance = "no_variance"
	// WarnMasked: more than 20 % of a step's rollouts were masked.
	WarnMasked = "masked"
	// WarnTruncated: every rollout that counts has a reply that was cut off.
	WarnTruncated = "truncated"
	// WarnPrefix: more than 5 % of a step's later calls did not extend the call
	// before, so that rollouts fall into several sequences.
	WarnPrefix = "prefix_mismatch"
	// WarnLogprobs: the log-probabilities of sampler and trainer differ by more than
	// 0.05 on average, so that the importance ratios are wrong.
	WarnLogprobs = "logprob_gap"
	// WarnLate: rewards came after a live run had read their rollouts without one.
	WarnLate = "late_rewards"
	// WarnSynchronous: the engine cannot sample beside training.
	WarnSynchronous = "synchronous"
)

const (
	maxMaskedShare    = 0.20
	maxMismatchShare  = 0.05
	maxMeanLogprobGap = 0.05
)

// warnings returns the warnings about a step. earned says that the model had a reward before it.
func warnings(r StepReport, earned bool) []algorithm.Warning {
	var list []algorithm.Warning
	add := func(kind, format string, args ...any) {
		list = append(list, algorithm.Warning{Kind: kind, Step: r.Step, Message: fmt.Sprintf("step %d: ", r.Step) + fmt.Sprintf(format, args...)})
	}
	masked := r.masked()
	// If every rollout passed there is nothing to learn. Where that is so from the beginning, the reward may be constant.
	if r.Sequences == 0 && masked < r.Rollouts && (r.PassRate < 1 || r.GroupsUsed > 0 || r.Step == 1) {
		add(WarnNoVariance, "%s", whyNothing(r, masked, earned))
	}
	if r.Late > 0 {
		add(WarnLate, "%d sessions got their reward after they were read without one, so nothing is learned from them; set proxy.sessions.reward_window, or agl store --reward-window, to the time that rewards take",
			r.Late)
	}
	if r.Truncated > 0 && r.Truncated == r.Rollouts-masked {
		add(WarnTruncated, "every rollout has a reply that was cut off at its length limit; raise max_tokens in the agent, or the model's context")
	}
	if shareOf(masked, r.Rollouts) > maxMaskedShare {
		add(WarnMasked, "%d of %d rollouts (%.0f %%) are masked: %s", masked, r.Rollouts, 100*shareOf(masked, r.Rollouts), algorithm.DescribeMasked(r.Masked))
	}
	later := r.ContinuedCalls + r.PrefixMismatches
	if share := shareOf(r.PrefixMismatches, later); share > maxMismatchShare {
		add(WarnPrefix, "%d of %d later calls (%.1f %%) do not extend the prompt and reply of the call before; the agent begins other conversations, or it or the chat template rewrites what was said; each part is trained on alone",
			r.PrefixMismatches, later, 100*share)
	}
	if r.LogprobGap.Mean > maxMeanLogprobGap && r.Staleness.Max == 0 { // other weights have others
		add(WarnLogprobs, "log-probabilities of sampler and trainer differ by %.3g nats on average (at most %.3g) for the same weights; check that both run the same model, precision and temperature",
			r.LogprobGap.Mean, r.LogprobGap.Max)
	}
	return list
}

// whyNothing says why a step has taught nothing, as far as its numbers show it.
func whyNothing(r StepReport, masked int, earned bool) string {
	switch {
	case r.Failed == r.Rollouts-masked:
		return fmt.Sprintf("nothing was learned: in all %d rollouts that count the agent ended with an error", r.Failed)
	case r.Calls == 0:
		return fmt.Sprintf("nothing was learned: no model call was recorded in %d rollouts; the agent must call the model at the address that it is given", r.Rollouts)
	case r.GroupsUsed > 0:
		return fmt.Sprintf("nothing was learned: mask_truncated leaves out every reply that was cut off, which are those of all %d groups whose rewards differ", r.GroupsUsed)
	case r.PassRate == 0 && r.RewardMean == 0 && earned:
		return fmt.Sprintf("nothing was learned: every reward of the %d rollouts is 0, and earlier ones were not; the tasks of this step may be too hard, or the steps so far have made the model worse, as a learning rate does that is too high", r.Rollouts)
	case r.PassRate == 0 && r.RewardMean == 0:
		return fmt.Sprintf("nothing was learned: every reward of the %d rollouts is 0, and a model learns only what it already does now and then; give it demonstrations (warm_start), easier tasks, or a reward for a part of the task", r.Rollouts)
	default:
		return fmt.Sprintf("nothing was learned: in all %d groups the rewards are equal (mean %.3g) or too few to compare; the tasks may be too easy or too hard for the model, or the reward is constant",
			r.Groups, r.RewardMean)
	}
}
