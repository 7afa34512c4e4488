package grpo

import "math"

// advantageEpsilon keeps the division by a tiny standard deviation in bounds.
const advantageEpsilon = 1e-4

// advantages returns the advantage of each rollout of a group over the group:
// (R − mean)/(std + 1e-4) with the population's standard deviation (DeepSeekMath,
// arXiv:2402.03300, §4.1.2), or R − mean when plain is set (Dr. GRPO,
// arXiv:2503.20783, §3.2). ok is false when there is none to be had: fewer than
// two rewards, or all equal.
func advantages(rewards []float64, plain bool) (adv []float64, ok bool) {
	n := float64(len(rewards))
	mean := 0.0
	varied := false
	for _, r := range rewards {
		mean += r / n
		varied = varied || r != rewards[0]
	}
	if !varied {
		return nil, false
	}
	scale := 1.0
	if !plain {
		variance := 0.0
		for _, r := range rewards {
			variance += (r - mean) * (r - mean) / n
		}
		scale = 1 / (math.Sqrt(variance) + advantageEpsilon)
	}
	adv = make([]float64, len(rewards))
	for i, r := range rewards {
		adv[i] = (r - mean) * scale
	}
	return adv, true
}
