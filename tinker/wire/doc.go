// Package wire holds the messages of the Tinker protocol, as Go structs, and their two encodings: JSON for every call, and
// protobuf for forward_backward and for the results of forward_backward and of sampling, on which some engines and the
// newer SDKs insist.
//
// The messages with two encodings are encoded and decoded by functions that take a media type:
//
//	body, err := wire.EncodeForward(wire.JSONType, wire.ForwardRequest{ModelID: id, Params: params})
//	request, err := wire.DecodeForward(mediaType, body)
//
// All others are structs to marshal as JSON. Their From functions take values of package tinker, and methods convert them
// back and check them.
//
// Names and numbers of fields are those of the official SDK (package tinker, Apache-2.0), versions 0.22 to 0.38. Unknown
// fields are ignored, because servers and SDKs add some. A float32 survives both encodings bit for bit.
//
// The package must not know of connections, retries, or how an engine works.
package wire
