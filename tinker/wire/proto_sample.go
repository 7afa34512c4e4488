package wire

import (
	"math"
	"slices"

	"github.com/agl-go/agl/tinker"
)

// The messages of tinker_public.
type (
	sampleResponse struct {
		Sequences      []sampledSequence
		PromptLogprobs []float32 // NaN in place of null
	}
	sampledSequence struct {
		StopReason uint64
		Tokens     []int32
		Logprobs   []float32
	}
)

// stopReasons returns the stop reasons in the order of their numbers in protobuf.
func stopReasons() []tinker.StopReason {
	return []tinker.StopReason{tinker.StopToken, tinker.StopLength}
}

func (r sampleJSON) protobuf() []byte {
	var m sampleResponse
	for _, s := range r.Sequences {
		reason := max(slices.Index(stopReasons(), tinker.StopReason(s.StopReason)), 0)
		m.Sequences = append(m.Sequences, sampledSequence{uint64(reason), s.Tokens, s.Logprobs})
	}
	for _, p := range r.PromptLogprobs {
		v := float32(math.NaN())
		if p != nil {
			v = *p
		}
		m.PromptLogprobs = append(m.PromptLogprobs, v)
	}
	return marshalProto(m)
}

func sampleFromProtobuf(body []byte) (r sampleJSON, err error) {
	var m sampleResponse
	if err := unmarshalProto("SampleResponse", body, &m); err != nil {
		return r, err
	}
	for _, s := range m.Sequences {
		if s.StopReason >= uint64(len(stopReasons())) {
			return r, invalid("SampleResponse: stop_reason %d is unknown", s.StopReason)
		}
		r.Sequences = append(r.Sequences, sequenceJSON{string(stopReasons()[s.StopReason]), s.Tokens, s.Logprobs})
	}
	for i, v := range m.PromptLogprobs {
		r.PromptLogprobs = append(r.PromptLogprobs, &m.PromptLogprobs[i])
		if math.IsNaN(float64(v)) {
			r.PromptLogprobs[i] = nil
		}
	}
	return r, nil
}
