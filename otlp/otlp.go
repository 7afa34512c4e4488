// Package otlp translates OpenTelemetry's protocol to agl.Span: the traces
// export request in its protobuf and its JSON encoding, and the answers that
// the protocol asks for. It must not know who sends the spans or what becomes
// of them.
//
// A span says where it belongs by its attributes agentlightning.rollout_id and
// agentlightning.attempt_id, or by those of its resource; a span that says
// neither is rejected and costs no other span.
package otlp

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

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

// Batch is a decoded export request.
type Batch struct {
	// Spans are those that name their attempt, in the order of the document. A
	// SequenceID of 0 is to be issued by the store.
	Spans []agl.Span
	// Rejected counts the spans that cannot be stored; Reason says why the first
	// of them cannot.
	Rejected int
	Reason   string
}

// Decode reads an export request; an empty one has no spans. A document that is
// no export request is agl.ErrInvalid.
func Decode(data []byte, encoding Encoding) (Batch, error) {
	if len(data) == 0 {
		return Batch{}, nil
	}
	var b Batch
	traces, err := b.unmarshal(data, encoding)
	if err != nil {
		return Batch{}, agl.Errorf(agl.CodeInvalid, "Unable to parse OTLP traces payload: %w", err)
	}
	b.Spans = make([]agl.Span, 0, traces.SpanCount())
	for _, rs := range traces.ResourceSpans().All() {
		resource := agl.SpanResource{Attributes: attributes(rs.Resource().Attributes()), SchemaURL: rs.SchemaUrl()}
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				b.add(span, rs.Resource(), resource)
			}
		}
	}
	return b, nil
}

func (b *Batch) unmarshal(data []byte, encoding Encoding) (ptrace.Traces, error) {
	if encoding == JSON {
		return new(ptrace.JSONUnmarshaler).UnmarshalTraces(data)
	}
	traces, err := new(ptrace.ProtoUnmarshaler).UnmarshalTraces(data)
	if err == nil {
		return traces, nil
	}
	// The decoder refuses a whole request for one id of another size.
	padded, padErr := b.padIDs(data)
	if padErr != nil {
		return ptrace.Traces{}, err
	}
	return new(ptrace.ProtoUnmarshaler).UnmarshalTraces(padded)
}

// add translates one span or rejects it.
func (b *Batch) add(in ptrace.Span, from pcommon.Resource, resource agl.SpanResource) {
	own, inherited := in.Attributes(), from.Attributes()
	rolloutID := identity(agl.AttrRolloutID, own, inherited)
	attemptID := identity(agl.AttrAttemptID, own, inherited)
	if rolloutID == "" || attemptID == "" {
		b.Reject(1, fmt.Sprintf("span %q has no %s or no %s, neither itself nor in its resource", in.Name(), agl.AttrRolloutID, agl.AttrAttemptID))
		return
	}
	traceID, spanID := in.TraceID(), in.SpanID()
	out := agl.Span{
		RolloutID:  rolloutID,
		AttemptID:  attemptID,
		SequenceID: sequenceID(own, inherited),
		TraceID:    hex.EncodeToString(traceID[:]),
		SpanID:     hex.EncodeToString(spanID[:]),
		Name:       in.Name(),
		Status:     status(in.Status()),
		Attributes: attributes(own),
		StartTime:  timestamp(in.StartTimestamp()),
		EndTime:    timestamp(in.EndTimestamp()),
		Resource:   resource,
	}
	out.Context = &agl.SpanContext{TraceID: out.TraceID, SpanID: out.SpanID}
	if parent := in.ParentSpanID(); !parent.IsEmpty() {
		out.ParentID = agl.Some(hex.EncodeToString(parent[:]))
	}
	for _, e := range in.Events().All() {
		out.Events = append(out.Events, agl.SpanEvent{Name: e.Name(), Attributes: attributes(e.Attributes()), Timestamp: timestamp(e.Timestamp())})
	}
	for _, l := range in.Links().All() {
		linkTrace, linkSpan := l.TraceID(), l.SpanID()
		link := agl.SpanLink{Context: agl.SpanContext{TraceID: hex.EncodeToString(linkTrace[:]), SpanID: hex.EncodeToString(linkSpan[:])}}
		if l.Attributes().Len() > 0 {
			link.Attributes = attributes(l.Attributes())
		}
		out.Links = append(out.Links, link)
	}
	b.Spans = append(b.Spans, out)
}

// Reject counts n spans that cannot be stored and keeps the first reason.
func (b *Batch) Reject(n int, reason string) {
	if b.Rejected == 0 {
		b.Reason = reason
	}
	b.Rejected += n
}

// identity returns an id out of the first map that has one; an empty one counts
// as absent.
func identity(key string, maps ...pcommon.Map) string {
	for _, m := range maps {
		if v, ok := m.Get(key); ok {
			if id := v.AsString(); id != "" {
				return id
			}
		}
	}
	return ""
}

// sequenceID returns the sequence id, or 0 if the first map that has one holds
// no positive integer.
func sequenceID(maps ...pcommon.Map) int64 {
	for _, m := range maps {
		v, ok := m.Get(agl.AttrSpanSequenceID)
		if !ok {
			continue
		}
		id, err := strconv.ParseInt(strings.TrimSpace(v.AsString()), 10, 64)
		if err != nil || id < 0 {
			return 0
		}
		return id
	}
	return 0
}

func status(s ptrace.Status) agl.SpanStatus {
	out := agl.SpanStatus{Code: agl.StatusUnset}
	switch s.Code() {
	case ptrace.StatusCodeOk:
		out.Code = agl.StatusOK
	case ptrace.StatusCodeError:
		out.Code = agl.StatusError
	case ptrace.StatusCodeUnset:
	}
	if s.Message() != "" {
		out.Description = agl.Some(s.Message())
	}
	return out
}

// timestamp converts nanoseconds to seconds; 0 is no time.
func timestamp(t pcommon.Timestamp) agl.Null[agl.Timestamp] {
	if t == 0 {
		return agl.Null[agl.Timestamp]{}
	}
	const second = 1_000_000_000
	return agl.Some(agl.Timestamp(float64(t/second) + float64(t%second)/second))
}

// attributes translates attributes, in their order. What an attribute of ours
// cannot hold is spread over several: a map by its keys, a list that is not of
// one kind by its indices, each after a dot. A value of no kind is left out.
func attributes(m pcommon.Map) agl.Attributes {
	out := append(make([]byte, 0, 64*m.Len()+2), '{')
	for key, v := range m.All() {
		out = appendAttribute(out, key, v)
	}
	return append(out, '}')
}

func appendAttribute(dst []byte, key string, v pcommon.Value) []byte {
	switch v.Type() {
	case pcommon.ValueTypeEmpty:
		return dst
	case pcommon.ValueTypeMap:
		for name, member := range v.Map().All() {
			dst = appendAttribute(dst, key+"."+name, member)
		}
		return dst
	case pcommon.ValueTypeSlice:
		if !uniform(v.Slice()) {
			for i, element := range v.Slice().All() {
				dst = appendAttribute(dst, key+"."+strconv.Itoa(i), element)
			}
			return dst
		}
		dst = append(appendKey(dst, key), '[')
		for i, element := range v.Slice().All() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendScalar(dst, element)
		}
		return append(dst, ']')
	default:
		return appendScalar(appendKey(dst, key), v)
	}
}

func appendKey(dst []byte, key string) []byte {
	if len(dst) > 1 {
		dst = append(dst, ',')
	}
	return append(rawjson.AppendString(dst, key), ':')
}

// uniform reports whether all elements are of one JSON kind that a list may
// hold.
func uniform(s pcommon.Slice) bool {
	for i := range s.Len() {
		if kind := scalarKind(s.At(i)); kind == 0 || kind != scalarKind(s.At(0)) {
			return false
		}
	}
	return true
}

func scalarKind(v pcommon.Value) byte {
	switch v.Type() {
	case pcommon.ValueTypeStr, pcommon.ValueTypeBytes:
		return '"'
	case pcommon.ValueTypeBool:
		return 't'
	case pcommon.ValueTypeInt:
		return '0'
	case pcommon.ValueTypeDouble:
		if math.IsNaN(v.Double()) || math.IsInf(v.Double(), 0) {
			return '"'
		}
		return '0'
	case pcommon.ValueTypeEmpty, pcommon.ValueTypeMap, pcommon.ValueTypeSlice:
	}
	return 0
}

func appendScalar(dst []byte, v pcommon.Value) []byte {
	switch v.Type() {
	case pcommon.ValueTypeBool:
		return strconv.AppendBool(dst, v.Bool())
	case pcommon.ValueTypeInt:
		return strconv.AppendInt(dst, v.Int(), 10)
	case pcommon.ValueTypeDouble:
		return rawjson.AppendFloatText(dst, v.Double())
	case pcommon.ValueTypeBytes:
		return append(hex.AppendEncode(append(dst, '"'), v.Bytes().AsRaw()), '"')
	case pcommon.ValueTypeStr, pcommon.ValueTypeEmpty, pcommon.ValueTypeMap, pcommon.ValueTypeSlice:
	}
	return rawjson.AppendString(dst, v.Str())
}

// AppendResponse appends an ExportTraceServiceResponse: empty if nothing was
// rejected, else with a partial success.
func AppendResponse(dst []byte, encoding Encoding, rejected int, reason string) []byte {
	if encoding == JSON {
		if rejected == 0 {
			return append(dst, "{}"...)
		}
		dst = append(dst, `{"partialSuccess":{"rejectedSpans":"`...)
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

// AppendStatus appends the google.rpc.Status that answers a request which
// failed as a whole.
func AppendStatus(dst []byte, encoding Encoding, message string) []byte {
	if encoding == JSON {
		dst = append(dst, `{"message":`...)
		return append(rawjson.AppendString(dst, message), '}')
	}
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	return protowire.AppendString(dst, message)
}
