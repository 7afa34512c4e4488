package tinker

import (
	"math"
)

// Datum is one training sequence of T tokens. All non-nil slices have length T; position i of each speaks
// of the prediction of Targets[i] from Input[0..i].
//
// For a text t[0..n) one takes Input = t[:n-1] and Targets = t[1:]: the targets are the input shifted by one.
type Datum struct {
	// Input is the model's input, T ≥ 1 token ids.
	Input []int32
	// Targets[i] is the token that follows Input[i]. The wire name is target_tokens.
	Targets []int32
	// Weights multiplies the loss of each position; nil means 1 everywhere. Positions that the model did not
	// write (prompt, tool output) get 0.
	Weights []float32
	// Logprobs are the log-probabilities of Targets under the policy that sampled them (natural logarithm,
	// raw softmax). Required by every loss but cross_entropy, which ignores them.
	Logprobs []float32
	// Advantages are the per-position advantages. Required by every loss but cross_entropy, which ignores them.
	Advantages []float32
}

// Validate reports the first thing wrong with d for loss, naming the field and the index. Token ids must lie
// in [0, vocab); vocab 0 leaves out the upper bound. Numbers must be finite, and a log-probability of a
// position with a weight other than 0 must not be above 0 (a sampler's rounding of up to 1e-3 is allowed).
//
// Engines differ in what they do with bad data (some poison every model they hold), so callers of remote
// engines validate before they send. The error has code agl.CodeInvalid.
func (d *Datum) Validate(loss LossName, vocab int) error {
	n := len(d.Input)
	if n == 0 {
		return invalid("input: no tokens; at least 1 is needed")
	}
	if len(d.Targets) != n {
		return invalid("targets: %d values for %d input tokens; the lengths must be equal", len(d.Targets), n)
	}
	if err := checkTokens("input", d.Input, vocab); err != nil {
		return err
	}
	if err := checkTokens("targets", d.Targets, vocab); err != nil {
		return err
	}
	needsPolicy := loss.OfPolicy()
	for _, f := range []struct {
		name     string
		values   []float32
		required bool
	}{
		{"weights", d.Weights, false},
		{"logprobs", d.Logprobs, needsPolicy},
		{"advantages", d.Advantages, needsPolicy},
	} {
		if f.values == nil && !f.required {
			continue
		}
		if len(f.values) != n {
			return invalid("%s: %d values for %d input tokens; loss %s needs equal lengths", f.name, len(f.values), n, loss)
		}
		for i, v := range f.values {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return invalid("%s[%d]: %v is not finite", f.name, i, v)
			}
		}
	}
	if needsPolicy {
		for i, lp := range d.Logprobs {
			if lp > 1e-3 && (d.Weights == nil || d.Weights[i] != 0) {
				return invalid("logprobs[%d]: %v is above 0, which no log-probability is", i, lp)
			}
		}
	}
	return nil
}

func checkTokens(field string, ids []int32, vocab int) error {
	for i, id := range ids {
		if id < 0 || (vocab > 0 && int(id) >= vocab) {
			if vocab > 0 {
				return invalid("%s[%d]: token id %d is outside the vocabulary [0, %d)", field, i, id, vocab)
			}
			return invalid("%s[%d]: token id %d is negative", field, i, id)
		}
	}
	return nil
}
