package tinker

import "math"

// LossName names a training loss as the protocol does.
type LossName string

// The losses that every implementation here supports.
//
// Notation, per position i of a datum: w weight, p = log π(target) under the weights being trained,
// q = Logprobs[i] (the sampler's), A advantage, r = exp(p − q).
const (
	// CrossEntropy is −w·p, the negative log-likelihood.
	CrossEntropy LossName = "cross_entropy"
	// ImportanceSampling is −w·r·A: the policy gradient with a correction for the policy having moved
	// since the sample was drawn (REINFORCE, Williams 1992, with per-token importance weights). Its
	// gradient is −w·r·A·∇p.
	ImportanceSampling LossName = "importance_sampling"
	// PPO is −w·min(r·A, clip(r, ClipLow, ClipHigh)·A), the clipped surrogate of Schulman et al. 2017
	// (arXiv:1707.06347, eq. 7). Where the clipped term is the smaller one the gradient is 0, elsewhere
	// it is that of importance_sampling.
	PPO LossName = "ppo"
)

// Loss selects a loss and its configuration.
type Loss struct {
	// Name is the loss; the zero value is not a loss.
	Name LossName
	// ClipLow and ClipHigh bound the ratio r in ppo; zero means 0.8 and 1.2, the protocol's defaults. The
	// wire names are clip_low_threshold and clip_high_threshold.
	ClipLow, ClipHigh float32
}

// WithDefaults returns l with zero clip bounds replaced by their defaults.
func (l Loss) WithDefaults() Loss {
	if l.ClipLow == 0 {
		l.ClipLow = 0.8
	}
	if l.ClipHigh == 0 {
		l.ClipHigh = 1.2
	}
	return l
}

// Validate reports an unknown loss or clip bounds that do not satisfy 0 ≤ ClipLow ≤ 1 ≤ ClipHigh (after
// defaults), with code agl.CodeInvalid.
func (l Loss) Validate() error {
	switch l.Name {
	case CrossEntropy, ImportanceSampling, PPO:
	default:
		return invalid("loss: %q is unknown; allowed are %q, %q, %q", l.Name, CrossEntropy, ImportanceSampling, PPO)
	}
	d := l.WithDefaults()
	if !(d.ClipLow >= 0 && d.ClipLow <= 1) {
		return invalid("loss: clip_low_threshold %v is outside [0, 1]", d.ClipLow)
	}
	if !(d.ClipHigh >= 1) || math.IsInf(float64(d.ClipHigh), 0) {
		return invalid("loss: clip_high_threshold %v is below 1 or not finite", d.ClipHigh)
	}
	return nil
}

// Elementwise is the weighted loss of each position of d, given the log-probabilities of its targets under the
// weights being trained. Engines compute it themselves; it is for those that answer log-probabilities only.
func (l Loss) Elementwise(d *Datum, logprobs []float32) []float32 {
	l = l.WithDefaults()
	losses := make([]float32, len(logprobs))
	for i, p := range logprobs {
		w := float32(1)
		if d.Weights != nil {
			w = d.Weights[i]
		}
		switch {
		case w == 0:
			continue
		case l.Name == CrossEntropy:
			losses[i] = -w * p
			continue
		}
		ratio := float32(math.Exp(float64(p) - float64(d.Logprobs[i])))
		gain := ratio * d.Advantages[i]
		if l.Name == PPO {
			gain = min(gain, max(l.ClipLow, min(l.ClipHigh, ratio))*d.Advantages[i])
		}
		losses[i] = -w * gain
	}
	return losses
}
