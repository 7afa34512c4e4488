package grpo

import (
	"cmp"
	"math"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// CorrectionKind is a way to correct for samples that were drawn by other weights than those in training.
//
// Notation: b is the log-probability of a token under the sampler, p (proximal) that under the weights at the beginning of the step,
// ρ = exp(p − b), T the number of sampled tokens of a sequence, A a token's advantage. A correction gives each token a constant factor w.
//
// Those that weigh, the first five, make p the denominator of the loss's ratio, so that the loss is decoupled PPO's (Hilton et al. 2022,
// arXiv:2110.00641; AReaL, arXiv:2505.24298, eq. 5): w·loss(π/π_p). Those that reject leave b there.
type CorrectionKind string

// The corrections.
const (
	// TokenTIS is w = min(ρ, High), truncated importance sampling per token (Espeholt et al. 2018, arXiv:1802.01561). High is 2.
	TokenTIS CorrectionKind = "token_tis"
	// SequenceTIS is w = min(∏ρ, High), the same for each sequence: less bias, more variance. High is 2.
	SequenceTIS CorrectionKind = "sequence_tis"
	// SequenceMIS is w = ∏ρ, and 0 where that is above High. High is 2.
	SequenceMIS CorrectionKind = "sequence_mis"
	// IcePop is w = ρ, and 0 outside [Low, High] (Ling team 2025, arXiv:2510.18855, §3). They are 0.5 and 5.
	IcePop CorrectionKind = "icepop"
	// GSPO is w = (∏ρ)^(1/T), and 0 where a clip of that ratio to [Low, High] would have no gradient (Zheng et al. 2025, arXiv:2507.18071,
	// eq. 5). They are 1 − 3e-4 and 1 + 4e-4.
	GSPO CorrectionKind = "gspo"
	// Geometric rejects sequences whose (∏ρ)^(1/T) is outside [Low, High]. They are 0.99 and 1.01.
	Geometric CorrectionKind = "geometric"
	// DPPO rejects tokens that have already moved along their advantage by more than High in probability: e^p − e^b > High where
	// A > 0, e^b − e^p > High where A < 0. High is 0.2.
	DPPO CorrectionKind = "dppo"
	// DualClip rejects tokens with A < 0 and ρ > High, whose ratio the losses leave unbounded (Ye et al. 2020, arXiv:1912.09729, eq. 5).
	// High is 3.
	DualClip CorrectionKind = "dual_clip"
)

// correctionRule is what a kind does.
type correctionRule struct {
	kind      CorrectionKind
	low, high float64 // the bounds by default; kinds without a lower bound have low 0
	weighs    bool    // it replaces the denominator of the loss's ratio
	factor    func(r ratios, low, high float64) float64
}

// ratios are what the factor of a token depends on: ρ, ∏ρ, (∏ρ)^(1/T), e^p − e^b and A.
type ratios struct{ token, product, mean, moved, advantage float64 }

// unless is w, or 0 for a token that is rejected.
func unless(rejected bool, w float64) float64 {
	if rejected {
		return 0
	}
	return w
}

var correctionRules = []correctionRule{
	{TokenTIS, 0, 2, true, func(r ratios, _, high float64) float64 { return min(r.token, high) }},
	{SequenceTIS, 0, 2, true, func(r ratios, _, high float64) float64 { return min(r.product, high) }},
	{SequenceMIS, 0, 2, true, func(r ratios, _, high float64) float64 { return unless(r.product > high, r.product) }},
	{IcePop, 0.5, 5, true, func(r ratios, low, high float64) float64 { return unless(r.token < low || r.token > high, r.token) }},
	{GSPO, 1 - 3e-4, 1 + 4e-4, true, func(r ratios, low, high float64) float64 {
		return unless(r.advantage > 0 && r.mean > high || r.advantage < 0 && r.mean < low, r.mean)
	}},
	{Geometric, 0.99, 1.01, false, func(r ratios, low, high float64) float64 { return unless(r.mean < low || r.mean > high, 1) }},
	{DPPO, 0, 0.2, false, func(r ratios, _, high float64) float64 {
		return unless(r.advantage > 0 && r.moved > high || r.advantage < 0 && -r.moved > high, 1)
	}},
	{DualClip, 0, 3, false, func(r ratios, _, high float64) float64 { return unless(r.advantage < 0 && r.token > high, 1) }},
}

// CorrectionKinds returns all corrections.
func CorrectionKinds() (kinds []CorrectionKind) {
	for _, r := range correctionRules {
		kinds = append(kinds, r.kind)
	}
	return kinds
}

// Correction corrects for samples of other weights. It takes a forward pass over the data of each step.
type Correction struct {
	// Kind is empty for none: then the loss's own ratio corrects, token by token.
	Kind CorrectionKind
	// Low and High are the bounds; zero means those of the kind. Kinds without a lower bound take none.
	Low, High float64
}

// rule returns that of the kind; one that changes nothing if there is none.
func (c Correction) rule() correctionRule {
	if i := slices.IndexFunc(correctionRules, func(r correctionRule) bool { return r.kind == c.Kind }); i >= 0 {
		return correctionRules[i]
	}
	return correctionRule{factor: func(ratios, float64, float64) float64 { return 1 }}
}

func (c Correction) defaults() Correction {
	r := c.rule()
	return Correction{c.Kind, cmp.Or(c.Low, r.low), cmp.Or(c.High, r.high)}
}

func (c Correction) validate() error {
	d := c.defaults()
	twoSided := c.rule().low > 0
	switch {
	case c.Kind == "":
		if c != (Correction{}) {
			return agl.Errorf(agl.CodeInvalid, "Correction has bounds without a Kind; allowed are %q", CorrectionKinds())
		}
	case !slices.Contains(CorrectionKinds(), c.Kind):
		return agl.Errorf(agl.CodeInvalid, "Correction.Kind is %q; allowed are %q", c.Kind, CorrectionKinds())
	case !(d.High > 0) || math.IsInf(d.High, 0):
		return agl.Errorf(agl.CodeInvalid, "Correction.High is %v, must be a finite number above 0", d.High)
	case !twoSided && c.Low != 0:
		return agl.Errorf(agl.CodeInvalid, "Correction.Low is %v; %q takes none", c.Low, c.Kind)
	case twoSided && !(d.Low > 0 && d.Low <= 1 && d.High >= 1):
		return agl.Errorf(agl.CodeInvalid, "Correction.Low and High are %v and %v, must be above 0, at most 1, and at least 1", d.Low, d.High)
	}
	return nil
}

// Apply applies the correction to data. proximal holds the log-probabilities under the weights in training, one slice per
// datum. It returns the data that still have a token to train on, and how many of the tokens it rejects.
func (c Correction) Apply(data []tinker.Datum, proximal [][]float32) (kept []tinker.Datum, rejected int) {
	c = c.defaults()
	rule := c.rule()
	for k := range data {
		d, p := data[k], proximal[k]
		product, mean := sequenceRatio(&d, p)
		tokens := 0
		d.Weights, d.Advantages = slices.Clone(d.Weights), slices.Clone(d.Advantages)
		for i := range d.Weights {
			if d.Weights[i] == 0 {
				continue
			}
			p, b := float64(p[i]), float64(d.Logprobs[i])
			w := rule.factor(ratios{math.Exp(p - b), product, mean, math.Exp(p) - math.Exp(b), float64(d.Advantages[i])}, c.Low, c.High)
			if w == 0 {
				d.Weights[i], d.Advantages[i] = 0, 0
				rejected++
				continue
			}
			d.Advantages[i] *= float32(w)
			tokens++
		}
		if rule.weighs {
			d.Logprobs = p
		}
		if tokens > 0 {
			kept = append(kept, d)
		}
	}
	return kept, rejected
}

// sequenceRatio returns ∏ρ over the sampled tokens of a sequence, and its T-th root.
func sequenceRatio(d *tinker.Datum, proximal []float32) (product, mean float64) {
	sum, n := 0.0, 0
	for i, w := range d.Weights {
		if w != 0 {
			sum += float64(proximal[i]) - float64(d.Logprobs[i])
			n++
		}
	}
	return math.Exp(sum), math.Exp(sum / float64(max(n, 1)))
}

// Drift compares the weights at the beginning of a step with those that sampled, over the sampled tokens.
type Drift struct {
	// Entropy is −mean of p, an estimate of the policy's entropy per token in nats where the samples are its own.
	Entropy float64 `json:"entropy"`
	// KL is the mean of ρ − log ρ − 1, which estimates KL(sampler‖policy) (k3 of Schulman 2020, http://joschu.net/blog/kl-approx.html).
	KL float64 `json:"kl"`
	// Ratio has the quantiles 0, 0.01, 0.5, 0.99 and 1 of ρ.
	Ratio [5]float64 `json:"ratio"`
	// Clipped is the share of tokens whose ρ is outside the loss's bounds, where the loss has some.
	Clipped float64 `json:"clipped"`
	// Rejected is the share of tokens that the correction gives the factor 0.
	Rejected float64 `json:"rejected"`
}

// driftOf compares the log-probabilities of a batch.
func driftOf(data []tinker.Datum, proximal [][]float32, loss tinker.Loss) Drift {
	loss = loss.WithDefaults()
	var d Drift
	var ratios []float64
	for k := range min(len(data), len(proximal)) {
		weights, sampler, current := data[k].Weights, data[k].Logprobs, proximal[k] //nolint:gosec // k is below both lengths
		for i := range min(len(weights), len(sampler), len(current)) {
			if weights[i] == 0 {
				continue
			}
			p := float64(current[i])
			away := p - float64(sampler[i])
			ratio := min(math.Exp(away), math.MaxFloat32) // finite, for JSON: some engines write -9999 for no probability
			ratios = append(ratios, ratio)
			d.Entropy -= p
			d.KL += ratio - away - 1
			if loss.Name.Clips() && (ratio < float64(loss.ClipLow) || ratio > float64(loss.ClipHigh)) {
				d.Clipped++
			}
		}
	}
	n := float64(len(ratios))
	if n == 0 {
		return Drift{}
	}
	d.Entropy, d.KL, d.Clipped = d.Entropy/n, d.KL/n, d.Clipped/n
	slices.Sort(ratios)
	for i, q := range [...]float64{0, 0.01, 0.5, 0.99, 1} {
		d.Ratio[i] = ratios[int(math.Round(q*(n-1)))]
	}
	return d
}
