// Package wire holds the messages of the Tinker protocol, as Go structs, and their two encodings: JSON for every call, and
// protobuf for forward_backward and for the results of forward_backward and of sampling, on which some engines and the
// newer SDKs insist.
//
// The From functions convert values of package tinker into messages; methods of the messages convert them back and check
// them. Clients and servers build on both:
//
//	body, err := wire.ForwardRequest{ModelID: id, Input: wire.FromForward(params)}.JSON()
//
//	request, err := wire.DecodeForward(mediaType, body)
//	params, err := request.Input.Params()
//
// Names and numbers of fields are those of the official SDK (package tinker, Apache-2.0), versions 0.22 to 0.38. Unknown
// fields are ignored, because servers and SDKs add some. A float32 survives both encodings bit for bit.
//
// The package must not know of connections, retries, or how an engine works.
package wire
