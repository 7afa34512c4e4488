package grpo

import (
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/tinker"
)

// sampledTokens counts the tokens that the model wrote.
func sampledTokens(t adapter.Trajectory) int {
	n := 0
	for _, reply := range t.Replies {
		n += reply.End - reply.Start
	}
	return n
}

// datum makes the training form of a trajectory: position i predicts token i+1.
// Positions whose target the model wrote have the weight and the advantage given,
// all others (prompts and what was put between replies) 0. ok is false when there
// is no such position.
func datum(t adapter.Trajectory, weight, advantage float32) (d tinker.Datum, ok bool) {
	n := len(t.TokenIDs) - 1
	if n < 1 {
		return tinker.Datum{}, false
	}
	d = tinker.Datum{
		Input: t.TokenIDs[:n], Targets: t.TokenIDs[1:],
		Weights: make([]float32, n), Logprobs: make([]float32, n), Advantages: make([]float32, n),
	}
	for i := range n {
		if t.Mask[i+1] {
			d.Weights[i], d.Logprobs[i], d.Advantages[i] = weight, t.Logprobs[i+1], advantage
			ok = true
		}
	}
	return d, ok
}
