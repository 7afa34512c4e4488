// Package wire holds the messages of the Tinker protocol and their encodings: JSON for every call, and
// protobuf for forward_backward and for the results of forward_backward and of sampling, which some engines
// and the newer SDKs insist on. It is bytes to values and back.
//
// Field names and numbers are those of the official SDK (package tinker, Apache-2.0), with versions 0.22 to
// 0.38 in mind. Members and fields that are not known are passed over, as servers and SDKs add them. Numbers
// of type float32 survive both encodings bit for bit.
//
// The package must not know of connections, retries, or how an engine works.
package wire
