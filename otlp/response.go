package otlp

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agl-go/agl/internal/rawjson"
)

// AppendResponse appends an ExportTraceServiceResponse: an empty one if no span was
// rejected, else one that reports a partial success.
func AppendResponse(dst []byte, encoding Encoding, rejected int, reason string) []byte {
	return appendResponse(dst, encoding, "rejectedSpans", rejected, reason)
}

// AppendMetricsResponse is AppendResponse for data points.
func AppendMetricsResponse(dst []byte, encoding Encoding, rejected int, reason string) []byte {
	return appendResponse(dst, encoding, "rejectedDataPoints", rejected, reason)
}

// appendResponse appends a response. In protobuf, the responses of all signals have the same form.
func appendResponse(dst []byte, encoding Encoding, what string, rejected int, reason string) []byte {
	if encoding == JSON {
		if rejected == 0 {
			return append(dst, "{}"...)
		}
		dst = append(dst, `{"partialSuccess":{"`+what+`":"`...)
		dst = strconv.AppendInt(dst, int64(rejected), 10)
		dst = append(dst, `","errorMessage":`...)
		return append(rawjson.AppendString(dst, reason), "}}"...)
	}
	if rejected == 0 {
		return dst
	}
	partial := protowire.AppendTag(nil, 1, protowire.VarintType)
	partial = protowire.AppendVarint(partial, uint64(max(rejected, 0)))
	partial = protowire.AppendTag(partial, 2, protowire.BytesType)
	partial = protowire.AppendString(partial, reason)
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	return protowire.AppendBytes(dst, partial)
}

// AppendStatus appends the google.rpc.Status for a request that failed as a whole.
func AppendStatus(dst []byte, encoding Encoding, message string) []byte {
	if encoding == JSON {
		dst = append(dst, `{"message":`...)
		return append(rawjson.AppendString(dst, message), '}')
	}
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	return protowire.AppendString(dst, message)
}
