package grpo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// WarningKind says what a [Warning] is about.
type WarningKind string

// The kinds of warnings.
const (
	// WarnNoVariance: no group of a step had an advantage, so nothing was learned,
	// and not because every rollout passed.
	WarnNoVariance WarningKind = "no_variance"
	// WarnMasked: more than 20 % of a step's rollouts were masked.
	WarnMasked WarningKind = "masked"
	// WarnPrefix: more than 5 % of a step's later calls did not extend the call
	// before, so that rollouts fall into several sequences.
	WarnPrefix WarningKind = "prefix_mismatch"
	// WarnLogprobs: the sampler's log-probabilities are on average more than 0.05
	// off the trainer's, so that the importance ratios are wrong.
	WarnLogprobs WarningKind = "logprob_gap"
)

const (
	warnMaskedShare   = 0.20
	warnPrefixShare   = 0.05
	warnLogprobGapAvg = 0.05
)

// Warning is something that a person should look at.
type Warning struct {
	Kind    WarningKind
	Step    int
	Message string // one sentence with the numbers
}

// warnings returns what is worth a warning in a step.
func warnings(r StepReport) []Warning {
	var list []Warning
	add := func(kind WarningKind, format string, args ...any) {
		list = append(list, Warning{kind, r.Step, fmt.Sprintf(format, args...)})
	}
	masked := 0
	for _, n := range r.Masked {
		masked += n
	}
	if r.GroupsUsed == 0 && r.PassRate < 1 { // with all tasks done there is nothing to learn
		add(WarnNoVariance, "step %d: in all %d groups the rewards are equal (mean %.3g) or too few to compare, so nothing was learned; the tasks may be too easy or too hard for the model, or the reward is constant",
			r.Step, r.Groups, r.RewardMean)
	}
	if share := ratio(masked, r.Rollouts); share > warnMaskedShare {
		add(WarnMasked, "step %d: %d of %d rollouts (%.0f %%) are masked: %s",
			r.Step, masked, r.Rollouts, 100*share, describeMasked(r))
	}
	later := r.ContinuedCalls + r.PrefixMismatches
	if share := ratio(r.PrefixMismatches, later); share > warnPrefixShare {
		add(WarnPrefix, "step %d: %d of %d later calls (%.1f %%) do not extend the prompt and reply of the call before; the agent or the chat template rewrites the conversation, and each part is trained on alone",
			r.Step, r.PrefixMismatches, later, 100*share)
	}
	if r.LogprobGap.Mean > warnLogprobGapAvg {
		add(WarnLogprobs, "step %d: log-probabilities of sampler and trainer differ by %.3g nats on average (at most %.3g) for the same weights; check that both run the same model, precision and temperature",
			r.Step, r.LogprobGap.Mean, r.LogprobGap.Max)
	}
	return list
}

func describeMasked(r StepReport) string {
	var parts []string
	for _, mask := range slices.Sorted(maps.Keys(r.Masked)) {
		parts = append(parts, fmt.Sprintf("%s %d", mask, r.Masked[mask]))
	}
	return strings.Join(parts, ", ")
}

func ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// warn says each kind once.
func (r *run) warn(ctx context.Context, report StepReport) {
	for _, w := range warnings(report) {
		if r.warned[w.Kind] {
			continue
		}
		r.warned[w.Kind] = true
		r.cfg.Logger.WarnContext(ctx, w.Message, "kind", string(w.Kind), "step", w.Step)
		r.cfg.Progress.OnWarning(w)
	}
}
