package server

import (
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// result is the result of a call. It is encoded when it is read, because nearly every result is read once, in one encoding.
type result struct {
	encode   func(media string) ([]byte, error)
	protobuf bool  // there is a form in protobuf
	size     int64 // estimate of the memory that the result takes, in bytes
}

// resultOverhead is about how many bytes a result takes besides its numbers, for each datum or sequence.
const resultOverhead = 512

// encoded is a result that is encoded already.
func encoded(body []byte) result {
	return result{encode: func(string) ([]byte, error) { return body, nil }, size: int64(len(body)) + resultOverhead}
}

// message is the result of a call that returns little. It has no form in protobuf.
func message(m any) (result, error) {
	body, err := json.Marshal(m)
	return encoded(body), err
}

// failed is the result of a call that failed.
func failed(err error) result {
	code := agl.ErrorCode(err)
	out := wire.RequestFailed{Error: err.Error(), Category: "user", Code: string(code)}
	if code == agl.CodeInternal || code == agl.CodeUnavailable {
		out.Category = "server"
	}
	body, _ := json.Marshal(out, jsontext.AllowInvalidUTF8(true)) // invalid UTF-8 is the only error that strings can cause
	return encoded(body)
}

// forwardResult is the result of a forward pass.
func forwardResult(res tinker.ForwardResult) (result, error) {
	var size int64
	for i := range res.Logprobs {
		if err := checkFinite("logprobs", res.Logprobs[i]); err != nil {
			return result{}, agl.Errorf(agl.CodeInternal, "data[%d]: %w", i, err)
		}
		if err := checkFinite("elementwise_loss", res.Losses[i]); err != nil {
			return result{}, agl.Errorf(agl.CodeInternal, "data[%d]: %w", i, err)
		}
		size += resultOverhead + 8*int64(len(res.Logprobs[i]))
	}
	encode := func(media string) ([]byte, error) { return wire.EncodeForwardResult(media, res) }
	return result{encode: encode, protobuf: true, size: size}, nil
}

// sampleResult is the result of a sample, with the last log-probabilities of the prompt; nil means all of them.
func sampleResult(res tinker.SampleResult, last *int) (result, error) {
	if err := checkFinite("prompt_logprobs", res.PromptLogprobs); err != nil {
		return result{}, err
	}
	size := 8 * int64(len(res.PromptLogprobs))
	for i, seq := range res.Sequences {
		if err := checkFinite("logprobs", seq.Logprobs); err != nil {
			return result{}, agl.Errorf(agl.CodeInternal, "sequences[%d]: %w", i, err)
		}
		size += resultOverhead + 8*int64(len(seq.Tokens))
	}
	encode := func(media string) ([]byte, error) { return wire.EncodeSampleResult(media, res, last) }
	return result{encode: encode, protobuf: true, size: size}, nil
}

// checkFinite refuses numbers that JSON does not have, for clients of either encoding.
func checkFinite(what string, values []float32) error {
	for i, v := range values {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return agl.Errorf(agl.CodeInternal, "the result has a number that is not finite: %s[%d] is %v", what, i, v)
		}
	}
	return nil
}
