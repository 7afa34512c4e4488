package sft

import (
	"iter"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// learned is what the last step that was trained on a demonstration has computed of it.
type learned struct {
	step    int
	current []float32 // log-probabilities under the weights in training
}

// note keeps what a step has computed of its data. The address of its first token identifies a demonstration.
func (t *training) note(step int, data []tinker.Datum, logprobs [][]float32) {
	if t.learned == nil {
		return
	}
	for i := range min(len(data), len(logprobs)) {
		if len(logprobs[i]) != len(data[i].Input) {
			continue // nothing else that sft does depends on them
		}
		t.learned[&data[i].Input[0]] = learned{step, logprobs[i]}
	}
}

// trained describes what the steps of a round have computed from its rollouts.
func (r *run) trained(of map[*int32]learned) iter.Seq[algorithm.Trained] {
	kept := r.kept
	return func(yield func(algorithm.Trained) bool) {
		for i := range kept {
			t := algorithm.Trained{RolloutID: kept[i].id, AttemptID: kept[i].attempt}
			t.Step, t.Calls = kept[i].trained(of)
			if !yield(t) {
				return
			}
		}
	}
}

// trained returns the calls that were trained on, and the last step that was.
func (c *candidate) trained(of map[*int32]learned) (last int, calls []algorithm.TrainedCall) {
	tokens := 0
	for _, t := range c.sampled {
		of, ok := of[&t.TokenIDs[0]]
		if !ok { // the round had fewer steps than it takes to see all
			continue
		}
		last = max(last, of.step)
		for _, reply := range t.Replies {
			from, to := max(reply.Start-1, 0), reply.End-1 // the targets of its tokens
			if from >= to {
				continue
			}
			tokens += to - from
			call := algorithm.TrainedCall{SpanID: reply.SpanID}
			if reply.HasLogprobs() && tokens <= algorithm.MaxTrainedTokens {
				call.LogRatios = algorithm.NewSeries(to-from, func(i int) float64 {
					return float64(of.current[from+i]) - float64(t.Logprobs[from+i+1])
				})
			}
			calls = append(calls, call)
		}
	}
	return last, calls
}
