// Package otlp translates OpenTelemetry's protocol into agl.Span: [Decode] reads a traces export request in its protobuf or
// its JSON encoding, and [AppendResponse] and [AppendStatus] write the replies that the protocol asks for.
//
// The attributes agentlightning.rollout_id and agentlightning.attempt_id of a span, or of its resource, say which attempt
// the span belongs to. A span without them is rejected, and the other spans of the request are not affected.
//
// [DecodeMetrics] reads a metrics export request. The attributes agl.run_id and agl.step of a data point, or of its resource,
// say which run the metric belongs to.
//
// The package must not know who sends spans or what happens to them.
package otlp

// Encoding is one of the two encodings of the protocol over HTTP.
type Encoding int

// The encodings.
const (
	Protobuf Encoding = iota
	JSON
)

// The content types of the encodings.
const (
	ContentTypeProtobuf = "application/x-protobuf"
	ContentTypeJSON     = "application/json"
)

// ContentType returns the encoding's media type.
func (e Encoding) ContentType() string {
	if e == JSON {
		return ContentTypeJSON
	}
	return ContentTypeProtobuf
}
