package wire

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Protobuf encodes the result as tinker_public.SampleResponse. A null in prompt_logprobs is NaN.
func (r SampleResponse) Protobuf() []byte {
	var b []byte
	for _, s := range r.Sequences {
		var m []byte
		if s.StopReason == "length" {
			m = appendNumber(m, 1, 1)
		}
		m = appendMessage(m, 2, pack(s.Tokens))
		b = appendMessage(b, 1, appendMessage(m, 3, pack(s.Logprobs)))
	}
	if r.PromptLogprobs == nil {
		return b
	}
	values := make([]float32, len(r.PromptLogprobs))
	for i, p := range r.PromptLogprobs {
		values[i] = float32(math.NaN())
		if p != nil {
			values[i] = *p
		}
	}
	return appendMessage(b, 2, pack(values))
}

// decodeSampleProtobuf reads a tinker_public.SampleResponse.
func decodeSampleProtobuf(body []byte) (SampleResponse, error) {
	var r SampleResponse
	err := fields("SampleResponse", body, func(f field) error {
		switch f.num {
		case 1:
			s, err := decodeSequence(f.bytes)
			r.Sequences = append(r.Sequences, s)
			return err
		case 2:
			values, err := unpack[float32](f.bytes)
			r.PromptLogprobs = make([]*float32, len(values))
			for i, v := range values {
				if !math.IsNaN(float64(v)) {
					r.PromptLogprobs[i] = &values[i]
				}
			}
			return err
		}
		return nil
	})
	return r, err
}

func decodeSequence(b []byte) (SampledSequence, error) {
	s := SampledSequence{StopReason: "stop"}
	err := fields("SampledSequence", b, func(f field) (err error) {
		switch f.num {
		case 1:
			switch f.number {
			case 0:
			case 1:
				s.StopReason = "length"
			default:
				return invalid("stop_reason %d is unknown", f.number)
			}
			return f.need(protowire.VarintType)
		case 2:
			s.Tokens, err = unpack[int32](f.bytes)
		case 3:
			s.Logprobs, err = unpack[float32](f.bytes)
		}
		return err
	})
	return s, err
}
