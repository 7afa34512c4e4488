package grpo

import (
	"math"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// checkLogprobs returns an error unless an engine has returned a log-probability of each token of data, finite where a token is trained on.
func checkLogprobs(data []tinker.Datum, logprobs [][]float32) error {
	if len(logprobs) != len(data) {
		return agl.Errorf(agl.CodeIllegalState, "the engine returned log-probabilities for %d sequences, but was given %d", len(logprobs), len(data))
	}
	for k := range data {
		if len(logprobs[k]) != len(data[k].Weights) {
			return agl.Errorf(agl.CodeIllegalState, "the engine returned %d log-probabilities for %d tokens", len(logprobs[k]), len(data[k].Weights))
		}
		for i, p := range logprobs[k] {
			if v := float64(p); data[k].Weights[i] != 0 && (math.IsNaN(v) || math.IsInf(v, 0)) {
				return agl.Errorf(agl.CodeIllegalState, "the engine returned the log-probability %v of token %d of sequence %d of the batch; if its weights have become useless, begin a new run with a smaller learning rate", v, i, k)
			}
		}
	}
	return nil
}

// trainedTokens counts the tokens that have a weight.
func trainedTokens(data []tinker.Datum) (n int) {
	for _, d := range data {
		for _, w := range d.Weights {
			if w != 0 {
				n++
			}
		}
	}
	return n
}

// logprobGap compares the sampler's log-probabilities with the trainer's.
func logprobGap(data []tinker.Datum, trainer [][]float32) Gap {
	var gap Gap
	n := 0
	for k := range min(len(data), len(trainer)) {
		weights, sampler, logprobs := data[k].Weights, data[k].Logprobs, trainer[k] //nolint:gosec // k is below both lengths
		for i := range min(len(weights), len(sampler), len(logprobs)) {
			if weights[i] == 0 {
				continue
			}
			d := math.Abs(float64(logprobs[i]) - float64(sampler[i]))
			gap.Mean += d
			gap.Max = max(gap.Max, d)
			n++
		}
	}
	if n > 0 {
		gap.Mean /= float64(n)
	}
	return gap
}
