package otlp

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// The sizes of ids, in bytes.
const (
	traceIDSize = 16
	spanIDSize  = 8
)

// Field numbers of the protobuf messages, from opentelemetry/proto/trace/v1 and opentelemetry/proto/collector/trace/v1.
const (
	requestResourceSpans = 1
	resourceScopeSpans   = 2
	scopeSpans           = 2
	spanTraceID          = 1
	spanSpanID           = 2
	spanParentSpanID     = 4
	spanName             = 5
	spanLinks            = 13
	linkTraceID          = 1
	linkSpanID           = 2
)

// padIDs gives the ids of a request the sizes that the decoder requires, because some exporters write other sizes. It
// pads a shorter id with zeros on the left; it removes a span with a longer id, and calls reject. An error means that
// the request is not a protobuf message.
func padIDs(request []byte, reject func(reason string)) ([]byte, error) {
	return rewrite(request, nested(requestResourceSpans, nested(resourceScopeSpans, padSpan(reject))))
}

// edit returns the new value of a length-delimited field. keep is false if the field must be left out.
type edit func(field protowire.Number, value []byte) (out []byte, keep bool, err error)

// nested returns an edit that applies inner to the messages in one field.
func nested(in protowire.Number, inner edit) edit {
	return func(field protowire.Number, value []byte) ([]byte, bool, error) {
		if field != in {
			return value, true, nil
		}
		out, err := rewrite(value, inner)
		return out, true, err
	}
}

// padSpan returns the edit of the spans in a ScopeSpans message.
func padSpan(reject func(reason string)) edit {
	return func(field protowire.Number, value []byte) ([]byte, bool, error) {
		if field != scopeSpans {
			return value, true, nil
		}
		out, name, tooLong, err := padded(value)
		if err == nil && tooLong > 0 {
			reject(fmt.Sprintf("span %q has an id of %d bytes, must be at most %d for a trace and %d for a span", name, tooLong, traceIDSize, spanIDSize))
			return nil, false, nil
		}
		return out, true, err
	}
}

// padded returns a span with padded ids, its name, and the size of an id that is too long, or 0.
func padded(span []byte) (out []byte, name string, tooLong int, err error) {
	pad := func(id []byte, size int) []byte {
		if len(id) > size {
			tooLong = len(id)
		}
		if len(id) == 0 || len(id) >= size {
			return id
		}
		return append(make([]byte, size-len(id), size), id...)
	}
	link := func(field protowire.Number, value []byte) []byte {
		switch field {
		case linkTraceID:
			return pad(value, traceIDSize)
		case linkSpanID:
			return pad(value, spanIDSize)
		}
		return value
	}
	out, err = rewrite(span, func(field protowire.Number, value []byte) ([]byte, bool, error) {
		switch field {
		case spanTraceID:
			return pad(value, traceIDSize), true, nil
		case spanSpanID, spanParentSpanID:
			return pad(value, spanIDSize), true, nil
		case spanName:
			name = string(value)
		case spanLinks:
			out, err := rewrite(value, func(field protowire.Number, value []byte) ([]byte, bool, error) {
				return link(field, value), true, nil
			})
			return out, true, err
		}
		return value, true, nil
	})
	return out, name, tooLong, err
}

// rewrite copies a message with its length-delimited fields edited.
func rewrite(message []byte, edit edit) ([]byte, error) {
	out := make([]byte, 0, len(message)+traceIDSize)
	for len(message) > 0 {
		field, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(field, kind, message[tag:])
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		whole := message[:tag+size]
		message = message[tag+size:]
		if kind != protowire.BytesType {
			out = append(out, whole...)
			continue
		}
		value, _ := protowire.ConsumeBytes(whole[tag:])
		value, keep, err := edit(field, value)
		if err != nil {
			return nil, err
		}
		if keep {
			out = protowire.AppendBytes(protowire.AppendTag(out, field, kind), value)
		}
	}
	return out, nil
}
