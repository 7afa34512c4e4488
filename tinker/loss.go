package tinker

import (
	"cmp"
	"math"
	"slices"
)

// LossName names a training loss as the protocol does.
type LossName string

// The losses of the protocol.
//
// Notation, per position i of a datum: w weight, p = log π(target) under the weights being trained,
// q = Logprobs[i] (the sampler's), A advantage, r = exp(p − q).
const (
	// CrossEntropy is −w·p, the negative log-likelihood.
	CrossEntropy LossName = "cross_entropy"
	// ImportanceSampling is −w·r·A: the policy gradient, corrected for the change of the policy since the sample was drawn
	// (REINFORCE, Williams 1992, with importance weights per token). Its gradient is −w·r·A·∇p.
	ImportanceSampling LossName = "importance_sampling"
	// PPO is −w·min(r·A, clip(r, ClipLow, ClipHigh)·A), the clipped surrogate of Schulman et al. 2017 (arXiv:1707.06347,
	// eq. 7). Its gradient is 0 where the clipped term is the smaller one, and elsewhere that of importance_sampling.
	PPO LossName = "ppo"
	// CISPO is −w·clip(r, ClipLow, ClipHigh)·A·p with the clipped ratio as a constant (MiniMax-M1, Chen et al. 2025,
	// arXiv:2506.13585, eq. 4 and 5). Its gradient is −w·clip(r)·A·∇p: a token beyond the bounds still counts, with a
	// bounded weight.
	CISPO LossName = "cispo"
	// DRO is −w·(A·p − Beta/2·(p − q)²), a policy gradient with a quadratic penalty, which can learn from samples of any
	// policy (Richemond et al. 2024, arXiv:2405.19107; Kimi k1.5, arXiv:2501.12599, §2.3.2). Its gradient is
	// −w·(A − Beta·(p − q))·∇p. A should be the reward above a baseline, not normalized.
	DRO LossName = "dro"
)

// LossNames are the names of all losses.
func LossNames() []LossName { return []LossName{CrossEntropy, ImportanceSampling, PPO, CISPO, DRO} }

// OfPolicy reports whether a loss needs the log-probabilities of the sampler and advantages.
func (n LossName) OfPolicy() bool { return n != CrossEntropy }

// Clips reports whether a loss clips the ratio.
func (n LossName) Clips() bool { return n == PPO || n == CISPO }

// Loss selects a loss and its configuration.
type Loss struct {
	// Name is required.
	Name LossName
	// ClipLow and ClipHigh are the bounds of the ratio r in ppo and cispo; zero means 0.8 and 1.2, the protocol's defaults.
	// On the wire they are clip_low_threshold and clip_high_threshold.
	ClipLow, ClipHigh float32
	// Beta is the weight of dro's penalty; zero means 0.05.
	Beta float32
}

// WithDefaults returns l with defaults in place of zero values.
func (l Loss) WithDefaults() Loss {
	l.ClipLow = cmp.Or(l.ClipLow, 0.8)
	l.ClipHigh = cmp.Or(l.ClipHigh, 1.2)
	l.Beta = cmp.Or(l.Beta, 0.05)
	return l
}

// Validate reports an unknown loss, bounds that do not satisfy 0 ≤ ClipLow ≤ 1 ≤ ClipHigh, or a Beta that is not positive,
// with code agl.CodeInvalid.
func (l Loss) Validate() error {
	if !slices.Contains(LossNames(), l.Name) {
		return invalid("loss: %q is unknown; allowed are %q", l.Name, LossNames())
	}
	d := l.WithDefaults()
	if !(d.ClipLow >= 0 && d.ClipLow <= 1) {
		return invalid("loss: clip_low_threshold %v is outside [0, 1]", d.ClipLow)
	}
	if !(d.ClipHigh >= 1) || math.IsInf(float64(d.ClipHigh), 0) {
		return invalid("loss: clip_high_threshold %v is below 1 or not finite", d.ClipHigh)
	}
	if !(d.Beta > 0) || math.IsInf(float64(d.Beta), 0) {
		return invalid("loss: beta %v is not a finite number > 0", d.Beta)
	}
	return nil
}

// At returns the weighted loss of position i of d and its derivative with respect to p, the log-probability of the target
// under the weights being trained. exp is e^x: an engine whose results do not depend on the architecture has its own. l has
// its defaults.
func (l Loss) At(d *Datum, i int, p float32, exp func(x float32) float32) (loss, slope float32) {
	weight := float32(1)
	if d.Weights != nil {
		weight = d.Weights[i]
	}
	switch {
	case weight == 0:
		return 0, 0
	case l.Name == CrossEntropy:
		return -weight * p, -weight
	}
	away, advantage := p-d.Logprobs[i], d.Advantages[i]
	if l.Name == DRO {
		pull := float32(l.Beta * away)
		gain := float32(advantage*p) - float32(pull*away)/2
		return -weight * gain, -weight * (advantage - pull)
	}
	r := exp(away)
	surrogate := r * advantage
	clipped := min(max(r, l.ClipLow), l.ClipHigh) * advantage
	switch {
	case l.Name == CISPO:
		return -weight * clipped * p, -weight * clipped
	case l.Name == PPO && clipped < surrogate:
		return -weight * clipped, 0
	}
	return -weight * surrogate, -weight * surrogate
}

// Elementwise computes the weighted loss of each position of d from the log-probabilities of its targets under the weights
// being trained, for engines that return only those.
func (l Loss) Elementwise(d *Datum, logprobs []float32) []float32 {
	l = l.WithDefaults()
	losses := make([]float32, len(logprobs))
	for i, p := range logprobs {
		losses[i], _ = l.At(d, i, p, func(x float32) float32 { return float32(math.Exp(float64(x))) })
	}
	return losses
}
