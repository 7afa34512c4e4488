package grpo

import (
	"slices"

	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// assemble makes the training data of groups, and counts in the report what becomes of them.
func assemble(c Config, groups []taskGroup, report *StepReport) []tinker.Datum {
	var counts StepReport
	countSamples(groups, c.PassReward, &counts)
	var data []tinker.Datum
	for _, g := range groups {
		groupData := assembleGroup(c, g, &counts)
		switch {
		case g[0].again: // it was counted when it was new
		case groupData == nil:
			report.GroupsSkipped++
		default:
			report.GroupsUsed++
		}
		data = append(data, groupData...)
	}
	report.Sequences += len(data)
	return data
}

// countSamples adds what the groups contain to a report.
func countSamples(groups []taskGroup, passReward float64, r *StepReport) {
	var tally algorithm.Tally
	sum, overlong := 0.0, 0.0
	r.Groups = len(groups)
	r.Masked = map[algorithm.Mask]int{}
	for _, s := range slices.Concat(groups...) {
		r.Rollouts++
		r.Spans += s.spans
		if s.mask != "" {
			r.Masked[s.mask]++
			r.UnusedTokens += s.sampled() + s.lostTokens
			continue
		}
		sum += s.reward
		overlong += s.overlong
		tally.Add(s.form, s.reward >= passReward)
		if s.truncated {
			r.Truncated++
		}
		if s.failed {
			r.Failed++
		}
		r.Calls += s.calls
		r.ContinuedCalls += s.continued
		r.PrefixMismatches += s.mismatches
		r.OtherCalls += s.others
		for _, t := range s.sequences {
			sampled := sampledTokens(t)
			r.PromptTokens += len(t.TokenIDs) - sampled
			r.ResponseTokens += sampled
		}
	}
	total := tally.Total()
	r.PassRate, r.Forms = total.PassRate, tally.Forms()
	if total.N > 0 {
		r.RewardMean, r.Overlong = sum/float64(total.N), overlong/float64(total.N)
	}
}

// assembleGroup returns the data of a group; nil if it has no advantage.
func assembleGroup(c Config, g taskGroup, counts *StepReport) []tinker.Datum {
	g = counting(g)
	adv, ok := credit(c.Credit, c.Baseline, c.PlainAdvantage, g)
	if !ok {
		return nil
	}
	data := []tinker.Datum{}
	for i, s := range g {
		if s.truncated && c.MaskTruncated {
			continue
		}
		weight := tokenWeight(c, s, counts)
		for k, t := range s.sequences {
			if d, ok := datum(t, float32(weight), adv[i][k]); ok {
				data = append(data, d)
			}
		}
	}
	return data
}

// tokenWeight returns the weight of each sampled token of a rollout. It divides by the tokens of a full batch: skipped
// groups count, and a masked rollout counts as one of mean length. With Async.Minibatches it is the batch of a minibatch, and the mean
// over these counts.
func tokenWeight(c Config, s sample, counts *StepReport) float64 {
	tokens := float64(counts.ResponseTokens) / float64(counts.Rollouts-counts.masked()) // of a mean rollout
	if c.LengthNormalization {
		tokens = float64(s.sampled())
	}
	return float64(c.Minibatches) / float64(c.parts()) / (float64(counts.Rollouts) * max(tokens, 1))
}

// datum converts a trajectory of n+1 tokens to training data of length n: position
// i predicts token i+1. Positions whose target the model sampled get the weight and
// the advantage of their reply, all others (prompts, and what stands between replies)
// get 0. ok is false if there is no such position.
func datum(t adapter.Trajectory, weight float32, advantages []float32) (d tinker.Datum, ok bool) {
	n := len(t.TokenIDs) - 1
	if n < 1 {
		return tinker.Datum{}, false
	}
	d = tinker.Datum{
		Input: t.TokenIDs[:n], Targets: t.TokenIDs[1:],
		Weights: make([]float32, n), Logprobs: make([]float32, n), Advantages: make([]float32, n),
	}
	for j, reply := range t.Replies {
		for i := max(reply.Start-1, 0); i < reply.End-1; i++ {
			d.Weights[i], d.Logprobs[i], d.Advantages[i] = weight, t.Logprobs[i+1], advantages[j]
			ok = true
		}
	}
	return d, ok
}
