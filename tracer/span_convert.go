package tracer

import (
	"encoding/hex"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// FromOTel converts an ended OpenTelemetry span. The result does not belong to an attempt yet: [Trace.Add] and the
// spans of an [agl.Result] set that. Maps among its attributes are flattened with dots, and mixed lists by index.
func FromOTel(s sdktrace.ReadOnlySpan) agl.Span {
	sc := s.SpanContext()
	span := agl.Span{
		TraceID: sc.TraceID().String(), SpanID: sc.SpanID().String(),
		Name: s.Name(), Status: convertStatus(s.Status()),
		Attributes: convertAttributes(s.Attributes()),
		StartTime:  convertTime(s.StartTime()), EndTime: convertTime(s.EndTime()),
		Context: convertContext(sc),
	}
	if parent := s.Parent(); parent.SpanID().IsValid() {
		span.ParentID = agl.Some(parent.SpanID().String())
		span.Parent = convertContext(parent)
	}
	for _, e := range s.Events() {
		span.Events = append(span.Events, agl.SpanEvent{
			Name: e.Name, Attributes: convertAttributes(e.Attributes), Timestamp: convertTime(e.Time),
		})
	}
	for _, l := range s.Links() {
		link := agl.SpanLink{Context: *convertContext(l.SpanContext)}
		if len(l.Attributes) > 0 {
			link.Attributes = convertAttributes(l.Attributes)
		}
		span.Links = append(span.Links, link)
	}
	return span
}

func convertTime(t time.Time) agl.Null[agl.Timestamp] {
	if t.IsZero() {
		return agl.Null[agl.Timestamp]{}
	}
	return agl.Some(agl.TimestampOf(t))
}

func convertStatus(s sdktrace.Status) agl.SpanStatus {
	out := agl.SpanStatus{Code: agl.StatusUnset}
	switch s.Code {
	case codes.Ok:
		out.Code = agl.StatusOK
	case codes.Error:
		out.Code = agl.StatusError
	case codes.Unset:
	}
	if s.Description != "" {
		out.Description = agl.Some(s.Description)
	}
	return out
}

func convertContext(sc trace.SpanContext) *agl.SpanContext {
	out := &agl.SpanContext{TraceID: sc.TraceID().String(), SpanID: sc.SpanID().String(), IsRemote: sc.IsRemote()}
	if state := sc.TraceState(); state.Len() > 0 {
		raw := jsontext.Value("{}")
		state.Walk(func(key, value string) bool {
			raw = rawjson.Set(raw, key, rawjson.AppendString(nil, value))
			return true
		})
		out.TraceState = raw
	}
	return out
}

// convertAttributes keeps types and order. Maps are flattened with dots and mixed
// lists by index, because the wire format has neither.
func convertAttributes(kvs []attribute.KeyValue) agl.Attributes {
	attrs := make([]agl.Attr, 0, len(kvs))
	for _, kv := range kvs {
		attrs = appendAttribute(attrs, string(kv.Key), kv.Value)
	}
	out, err := agl.NewAttributes(attrs...)
	if err != nil {
		// appendAttribute returns none that could be rejected.
		return agl.Attributes("{}")
	}
	return out
}

func appendAttribute(attrs []agl.Attr, key string, v attribute.Value) []agl.Attr {
	var value any
	switch v.Type() {
	case attribute.EMPTY:
		return attrs
	case attribute.SLICE:
		for i, element := range v.AsSlice() {
			attrs = appendAttribute(attrs, key+"."+strconv.Itoa(i), element)
		}
		return attrs
	case attribute.MAP:
		for _, member := range v.AsMap() {
			attrs = appendAttribute(attrs, key+"."+string(member.Key), member.Value)
		}
		return attrs
	case attribute.BYTESLICE:
		value = hex.EncodeToString(v.AsByteSlice())
	case attribute.BOOL, attribute.INT64, attribute.FLOAT64, attribute.STRING,
		attribute.BOOLSLICE, attribute.INT64SLICE, attribute.FLOAT64SLICE, attribute.STRINGSLICE:
		value = v.AsInterface()
	default:
		value = v.String()
	}
	return append(attrs, agl.Attr{Key: key, Value: value})
}
