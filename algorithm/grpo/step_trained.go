package grpo

import (
	"encoding/base64"
	"iter"
	"slices"

	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// computed is what an update has computed for a sequence of tokens: numbers for each target of its datum.
type computed struct {
	sampler    []float32 // log-probabilities under the weights that sampled
	advantages []float32 // with the penalty of KL, without the factor of the correction
	current    []float32 // log-probabilities under the weights in training; nil if the engine was not asked
	weights    []float32 // nil if the correction has left out all tokens
}

// note keeps what is known about data before the correction. The address of its first token identifies a sequence.
func (u *update) note(data []tinker.Datum) {
	for i := range data {
		d := &data[i]
		u.computed[&d.Input[0]] = &computed{sampler: d.Logprobs, advantages: d.Advantages, weights: d.Weights}
	}
}

// noteCurrent keeps log-probabilities under the weights in training, the first ones of each datum.
func (u *update) noteCurrent(data []tinker.Datum, logprobs [][]float32) {
	for i := range data {
		if c := u.computed[&data[i].Input[0]]; c.current == nil {
			c.current = logprobs[i]
		}
	}
}

// noteKept keeps which tokens the correction has kept of data.
func (u *update) noteKept(data, kept []tinker.Datum) {
	for i := range data {
		u.computed[&data[i].Input[0]].weights = nil
	}
	for i := range kept {
		u.computed[&kept[i].Input[0]].weights = kept[i].Weights
	}
}

// trainedCalls are the calls of a sample that an update was made of.
func (u *update) trainedCalls(s *sample) (calls []algorithm.TrainedCall) {
	tokens := 0
	for _, t := range s.sequences {
		if len(t.TokenIDs) == 0 || u.computed[&t.TokenIDs[0]] == nil {
			continue
		}
		c := u.computed[&t.TokenIDs[0]]
		for _, reply := range t.Replies {
			if from, to := max(reply.Start-1, 0), reply.End-1; from < to {
				tokens += to - from
				calls = append(calls, c.call(reply, from, to, tokens <= algorithm.MaxTrainedTokens))
			}
		}
	}
	return calls
}

// call describes a reply whose targets are [from, to).
func (c *computed) call(reply adapter.Reply, from, to int, whole bool) algorithm.TrainedCall {
	n := to - from
	call := algorithm.TrainedCall{SpanID: reply.SpanID}
	same := true
	for i := from + 1; i < to; i++ {
		same = same && c.advantages[i] == c.advantages[from]
	}
	if same {
		advantage := float64(c.advantages[from])
		call.Advantage = &advantage
	}
	if !whole {
		return call
	}
	if !same {
		call.Advantages = algorithm.NewSeries(n, func(i int) float64 { return float64(c.advantages[from+i]) })
	}
	if c.current != nil {
		call.LogRatios = algorithm.NewSeries(n, func(i int) float64 { return float64(c.current[from+i]) - float64(c.sampler[from+i]) })
	}
	bits := make([]byte, (n+7)/8)
	left := false
	for i := range n {
		if c.weights == nil || c.weights[from+i] == 0 {
			bits[i/8] |= 1 << (i % 8)
			left = true
		}
	}
	if left {
		call.LeftOut = base64.StdEncoding.EncodeToString(bits)
	}
	return call
}

// trained describes what the step has computed from its rollouts.
func (l lessons) trained(step int) iter.Seq[algorithm.Trained] {
	return func(yield func(algorithm.Trained) bool) {
		for _, one := range l.roles {
			for _, s := range slices.Concat(one.groups...) {
				if s.mask == "" && !yield(algorithm.Trained{RolloutID: s.id, AttemptID: s.attempt, Role: one.role.name, Step: step, Calls: one.update.trainedCalls(&s)}) {
					return
				}
			}
		}
	}
}
