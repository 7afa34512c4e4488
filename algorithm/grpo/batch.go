package grpo

import (
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// assemble turns the groups of a step into training data, and counts.
func (r *run) assemble(groups []group, report *StepReport) []tinker.Datum {
	var (
		data  []tinker.Datum
		tally algorithm.Tally
		sum   float64
	)
	report.Groups = len(groups)
	report.Masked = map[algorithm.Mask]int{}
	for _, g := range groups {
		for _, s := range g {
			report.Rollouts++
			report.Spans += s.spans
			if s.mask != "" {
				report.Masked[s.mask]++
				continue
			}
			sum += s.reward
			tally.Add(s.form, s.reward >= r.cfg.PassReward)
			report.Calls += s.calls
			report.ContinuedCalls += s.continued
			report.PrefixMismatches += s.mismatches
			for _, t := range s.sequences {
				sampled := sampledTokens(t)
				report.PromptTokens += len(t.TokenIDs) - sampled
				report.ResponseTokens += sampled
			}
		}
		groupData := r.groupData(g)
		if groupData == nil {
			report.GroupsSkipped++
			continue
		}
		report.GroupsUsed++
		data = append(data, groupData...)
	}
	total := tally.Total()
	report.PassRate, report.Forms = total.PassRate, tally.Forms()
	if total.N > 0 {
		report.RewardMean = sum / float64(total.N)
	}
	report.Sequences = len(data)
	return data
}

// groupData returns the data of a group, nil when it has no advantage.
func (r *run) groupData(g group) []tinker.Datum {
	var rewards []float64
	for _, s := range g {
		if s.mask == "" {
			rewards = append(rewards, s.reward)
		}
	}
	adv, ok := advantages(rewards, r.cfg.PlainAdvantage)
	if !ok {
		return nil
	}
	// The divisor is that of a full batch: skipped groups and masked rollouts add
	// nothing, and take nothing from the size of the step.
	rolloutWeight := float64(r.cfg.Minibatches) / float64(r.cfg.PromptsPerStep*r.cfg.GroupSize)
	data := []tinker.Datum{}
	at := 0
	for _, s := range g {
		if s.mask != "" {
			continue
		}
		weight := rolloutWeight
		if r.cfg.LengthNormalization {
			weight /= float64(max(s.sampled(), 1))
		}
		for _, t := range s.sequences {
			if d, ok := datum(t, float32(weight), float32(adv[at])); ok {
				data = append(data, d)
			}
		}
		at++
	}
	return data
}

// sampled counts the tokens that the model sampled in the rollout.
func (s sample) sampled() int {
	total := 0
	for _, t := range s.sequences {
		total += sampledTokens(t)
	}
	return total
}
