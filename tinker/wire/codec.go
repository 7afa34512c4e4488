package wire

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/tinker"
)

// maxMessages is how many messages a body may have, one in another. Decoded, an empty one of two bytes takes some hundred.
const maxMessages = 1 << 20

func errTooMany() error { return invalid("more than %d messages in one", maxMessages) }

// DecodeJSON reads a message that is not too large once it is decoded. A null in a vector of numbers, which some servers send in place of
// NaN, is an error.
func DecodeJSON(body []byte, message any) error {
	if rawjson.More(body, maxMessages) {
		return errTooMany()
	}
	return json.Unmarshal(body, message, json.WithUnmarshalers(json.UnmarshalFromFunc(noNull)))
}

// noNull refuses null as a number.
func noNull(dec *jsontext.Decoder, _ *float32) error {
	if dec.PeekKind() == jsontext.KindNull {
		return invalid("null is not a number; is it a NaN?")
	}
	return errors.ErrUnsupported
}

// The messages that have two encodings. The media type is [ProtobufType], or any other for JSON. Input that cannot be decoded
// is agl.ErrInvalid. JSON cannot encode NaN and infinities.

// EncodeForward encodes a request; in JSON for [Forward] if ForwardOnly is set and for [ForwardBackward] otherwise.
func EncodeForward(media string, r ForwardRequest) ([]byte, error) {
	if media == ProtobufType {
		return r.protobuf(), nil
	}
	return r.json()
}

// DecodeForward decodes a request. An unknown tensor or configuration is an error, as it would change the loss.
func DecodeForward(media string, body []byte) (ForwardRequest, error) {
	if media == ProtobufType {
		return forwardFromProtobuf(body)
	}
	return forwardFromJSON(body)
}

// EncodeForwardResult encodes the result of a forward pass.
func EncodeForwardResult(media string, res tinker.ForwardResult) ([]byte, error) {
	out := newResult(res)
	if media == ProtobufType {
		return out.protobuf(), nil
	}
	return json.Marshal(out, json.Deterministic(true))
}

// DecodeForwardResult decodes the result of a batch. For engines that return no elementwise_loss, as the hosted service,
// [tinker.Loss.Elementwise] computes it from the log-probabilities.
func DecodeForwardResult(media string, body []byte, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	return decodeResult(media, body, p, resultFromProtobuf)
}

// EncodeSampleResult encodes the result of a sample, with the last log-probabilities of the prompt; nil means all of them.
func EncodeSampleResult(media string, res tinker.SampleResult, last *int) ([]byte, error) {
	out := newSample(res, last)
	if media == ProtobufType {
		return out.protobuf(), nil
	}
	return out.json()
}

// DecodeSampleResult decodes the result of a sample.
func DecodeSampleResult(media string, body []byte, p tinker.SampleParams) (tinker.SampleResult, error) {
	return decodeResult(media, body, p, sampleFromProtobuf)
}

// decodeResult decodes a result for the params of its call.
func decodeResult[M interface{ result(P) (R, error) }, P, R any](media string, body []byte, params P, read func(body []byte) (M, error)) (result R, err error) {
	if media != ProtobufType {
		read = func(body []byte) (M, error) { return decodeJSON[M]("result", body) }
	}
	message, err := read(body)
	if err != nil {
		return result, err
	}
	return message.result(params)
}
