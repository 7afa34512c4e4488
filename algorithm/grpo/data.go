package grpo

import (
	"slices"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// assemble turns the groups of a step into training data, and counts.
func (r *run) assemble(groups []group, report *StepReport) []tinker.Datum {
	r.tally(groups, report)
	var data []tinker.Datum
	for _, g := range groups {
		groupData := r.groupData(g, report)
		if groupData == nil {
			report.GroupsSkipped++
			continue
		}
		report.GroupsUsed++
		data = append(data, groupData...)
	}
	report.Sequences = len(data)
	return data
}

// tally counts what the groups hold.
func (r *run) tally(groups []group, report *StepReport) {
	var tally algorithm.Tally
	sum := 0.0
	report.Groups = len(groups)
	report.Masked = map[algorithm.Mask]int{}
	for _, s := range slices.Concat(groups...) {
		report.Rollouts++
		report.Spans += s.spans
		if s.mask != "" {
			report.Masked[s.mask]++
			continue
		}
		sum += s.reward
		tally.Add(s.form, s.reward >= r.cfg.PassReward)
		if s.truncated {
			report.Truncated++
		}
		report.Calls += s.calls
		report.ContinuedCalls += s.continued
		report.PrefixMismatches += s.mismatches
		for _, t := range s.sequences {
			sampled := sampledTokens(t)
			report.PromptTokens += len(t.TokenIDs) - sampled
			report.ResponseTokens += sampled
		}
	}
	total := tally.Total()
	report.PassRate, report.Forms = total.PassRate, tally.Forms()
	if total.N > 0 {
		report.RewardMean = sum / float64(total.N)
	}
}

// groupData returns the data of a group, nil when it has no advantage.
func (r *run) groupData(g group, report *StepReport) []tinker.Datum {
	var rewards []float64
	for _, s := range g {
		if s.mask == "" {
			rewards = append(rewards, s.reward)
		}
	}
	adv, ok := advantages(rewards, r.cfg.Baseline, r.cfg.PlainAdvantage)
	if !ok {
		return nil
	}
	data := []tinker.Datum{}
	at := 0
	for _, s := range g {
		if s.mask != "" {
			continue
		}
		weight, advantage := r.weight(s, report), adv[at]
		at++
		if s.truncated && r.cfg.MaskTruncated {
			continue
		}
		for _, t := range s.sequences {
			if d, ok := datum(t, float32(weight), float32(advantage)); ok {
				data = append(data, d)
			}
		}
	}
	return data
}

// weight returns the weight of each sampled token of a rollout. The divisor is
// that of a full batch: the tokens of skipped groups count, and a masked rollout
// counts as one of mean length.
func (r *run) weight(s sample, report *StepReport) float64 {
	counted := report.Rollouts
	for _, n := range report.Masked {
		counted -= n
	}
	tokens := float64(report.ResponseTokens) / float64(counted) // of a mean rollout
	if r.cfg.LengthNormalization {
		tokens = float64(s.sampled())
	}
	return float64(r.cfg.Minibatches) / (float64(report.Rollouts) * max(tokens, 1))
}

// sampled counts the tokens that the model sampled in the rollout.
func (s sample) sampled() int {
	total := 0
	for _, t := range s.sequences {
		total += sampledTokens(t)
	}
	return total
}
