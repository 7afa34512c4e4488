package tinker

// Datum is one training sequence of T tokens. All non-nil slices have length T; their element i belongs to the prediction
// of Targets[i] from Input[0..i].
//
// For a sequence t[0..n), Input is t[:n-1] and Targets is t[1:]: the targets are the input shifted by one.
type Datum struct {
	// Input is the model's input, T ≥ 1 token ids.
	Input []int32
	// Targets[i] is the token that follows Input[i]. The wire name is target_tokens.
	Targets []int32
	// Weights are factors of the loss of each position; nil means 1 everywhere. They are 0 where the model did not write the
	// token (prompt, tool output).
	Weights []float32
	// Logprobs are the log-probabilities of Targets under the policy that sampled them (natural logarithm, raw softmax).
	// Every loss but cross_entropy needs them.
	Logprobs []float32
	// Advantages are the advantages of each position. Every loss but cross_entropy needs them.
	Advantages []float32
}

// Validate reports the first thing that is wrong with d for a loss, with the field and the index. Token ids must lie in
// [0, vocab); vocab 0 means no upper bound. Numbers must be finite, and log-probabilities of positions with a weight must
// not be above 0; rounding by up to 1e-3 is allowed. The error has code agl.CodeInvalid.
//
// Bad data spoil every model that some engines hold. Callers of remote engines validate before they send.
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
			if !isFinite(float64(v)) {
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
