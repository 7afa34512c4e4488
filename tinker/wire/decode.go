package wire

import "github.com/go-json-experiment/json"

// DecodeForward reads a request in the encoding of a media type. Errors are agl.CodeInvalid.
func DecodeForward(media string, body []byte) (ForwardRequest, error) {
	if media == ProtobufType {
		return decodeForwardProtobuf(body)
	}
	in, err := decodeJSON[forwardJSON]("body", body)
	if err != nil {
		return ForwardRequest{}, err
	}
	r := ForwardRequest{ModelID: in.ModelID, SeqID: in.SeqID}
	switch {
	case (in.Both == nil) == (in.Only == nil):
		return r, invalid("body: one of forward_backward_input and forward_input is needed")
	case in.Only != nil:
		r.Input, r.ForwardOnly = *in.Only, true
	default:
		r.Input = *in.Both
	}
	return r, nil
}

// DecodeForwardOutput reads a result in the encoding of a media type. Errors are agl.CodeInvalid.
func DecodeForwardOutput(media string, body []byte) (ForwardOutput, error) {
	if media == ProtobufType {
		return decodeForwardOutputProtobuf(body)
	}
	return decodeJSON[ForwardOutput]("result", body)
}

// DecodeSample reads a result in the encoding of a media type. Errors are agl.CodeInvalid.
func DecodeSample(media string, body []byte) (SampleResponse, error) {
	if media == ProtobufType {
		return decodeSampleProtobuf(body)
	}
	return decodeJSON[SampleResponse]("result", body)
}

// decodeJSON reads a message; what names it in errors.
func decodeJSON[T any](what string, body []byte) (message T, err error) {
	if err := json.Unmarshal(body, &message); err != nil {
		return message, invalid("%s: %w", what, err)
	}
	return message, nil
}
