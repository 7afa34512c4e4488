package grpo

import "math"

// advantageEpsilon keeps the division by a tiny standard deviation in bounds.
const advantageEpsilon = 1e-4

// Baseline is what a rollout's reward is compared with.
type Baseline string

// The baselines.
const (
	// GroupMean is the mean of the group, the rollout's own reward included: (R − mean)/(std + 1e-4) with the population's
	// standard deviation (DeepSeekMath, arXiv:2402.03300, §4.1.2), or R − mean with Config.PlainAdvantage (Dr. GRPO,
	// arXiv:2503.20783, §3.2).
	GroupMean Baseline = "group_mean"
	// LeaveOneOut is the mean of the others of the group (RLOO, Ahmadian et al. 2024, arXiv:2402.14740, eq. 8), which is
	// n/(n−1) times R − mean and leaves the gradient unbiased. It is not divided by the standard deviation.
	LeaveOneOut Baseline = "leave_one_out"
)

// Baselines returns all baselines.
func Baselines() []Baseline { return []Baseline{GroupMean, LeaveOneOut} }

// advantages returns the advantage of each rollout of a group over its baseline; plain leaves out the division by the
// standard deviation. ok is false if there are fewer than two rewards, or all are equal.
func advantages(rewards []float64, baseline Baseline, plain bool) (adv []float64, ok bool) {
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
	switch {
	case baseline == LeaveOneOut:
		scale = n / (n - 1)
	case !plain:
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

// expectation is the running mean and variance of the rewards of a kind of rollouts: its baseline.
type expectation struct {
	N        int     `json:"n"`
	Mean     float64 `json:"mean"`
	Variance float64 `json:"variance"`
}

// add updates the expectation with a reward. The first 1/rate rewards weigh the same.
func (e *expectation) add(reward, rate float64) {
	e.N++
	rate = max(rate, 1/float64(e.N))
	d := reward - e.Mean
	e.Mean += rate * d
	e.Variance = (1 - rate) * (e.Variance + rate*d*d)
}

// advantage returns the distance of a reward from the mean; plain leaves out the division by the
// standard deviation.
func (e *expectation) advantage(reward float64, plain bool) float64 {
	if plain {
		return reward - e.Mean
	}
	return (reward - e.Mean) / (math.Sqrt(e.Variance) + advantageEpsilon)
}
