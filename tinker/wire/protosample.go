package wire

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Protobuf encodes the result as tinker_public.SampleResponse. A missing prompt_logprobs value is NaN.
func (r SampleResponse) Protobuf() []byte {
	var b []byte
	for _, s := range r.Sequences {
		var m []byte
		if s.StopReason == "length" {
			m = appendNumber(m, 1, 1)
		}
		m = appendMessage(m, 2, packTokens(s.Tokens))
		m = appendMessage(m, 3, packFloats(s.Logprobs))
		b = appendMessage(b, 1, m)
	}
	if r.PromptLogprobs != nil {
		var packed []byte
		for _, p := range r.PromptLogprobs {
			v := float32(math.NaN())
			if p != nil {
				v = *p
			}
			packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(v))
		}
		b = appendMessage(b, 2, packed)
	}
	return b
}

// DecodeSampleProtobuf reads a tinker_public.SampleResponse. Errors are agl.CodeInvalid.
func DecodeSampleProtobuf(body []byte) (SampleResponse, error) {
	var r SampleResponse
	err := fields("SampleResponse", body, func(f field) error {
		switch f.num {
		case 1:
			s, err := decodeSequence(f.bytes)
			r.Sequences = append(r.Sequences, s)
			return err
		case 2:
			values, err := unpackFloats(f.bytes)
			if err != nil {
				return err
			}
			r.PromptLogprobs = make([]*float32, len(values))
			for i, v := range values {
				if !math.IsNaN(float64(v)) {
					r.PromptLogprobs[i] = &values[i]
				}
			}
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
			s.Tokens, err = unpackTokens(f.bytes)
		case 3:
			s.Logprobs, err = unpackFloats(f.bytes)
		}
		return err
	})
	return s, err
}
