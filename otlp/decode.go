package otlp

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agl-go/agl"
)

// Batch is a decoded export request.
type Batch struct {
	Rejections

	// Spans are the spans that name their attempt, in the order of the document. The store must issue a sequence id
	// for each whose SequenceID is 0.
	Spans []agl.Span

	growth growth
}

// Decode reads an export request. An empty document has no spans. A document that is not an export request, that has
// more than [MaxMessages], or whose values nest deeper than [MaxDepth], is agl.ErrInvalid. Spans with attribute names of more than 4 KiB, or that
// translation makes too large, are rejected.
func Decode(data []byte, encoding Encoding) (Batch, error) {
	if len(data) == 0 {
		return Batch{}, nil
	}
	b := Batch{growth: growth{left: MaxGrowth*len(data) + minGrowth}}
	if err := check(data, encoding, checkTraces); err != nil {
		return Batch{}, agl.Errorf(agl.CodeInvalid, "OTLP traces payload: %w", err)
	}
	traces, err := b.unmarshal(data, encoding)
	if err != nil {
		return Batch{}, agl.Errorf(agl.CodeInvalid, "Unable to parse OTLP traces payload: %w", err)
	}
	b.Spans = make([]agl.Span, 0, traces.SpanCount())
	for _, rs := range traces.ResourceSpans().All() {
		attrs, err := b.growth.attributes(rs.Resource().Attributes())
		resource := agl.SpanResource{Attributes: attrs, SchemaURL: text(rs.SchemaUrl())}
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				spanErr := err
				if spanErr == nil {
					spanErr = b.add(span, rs.Resource(), resource)
				}
				if spanErr != nil {
					b.Reject(1, fmt.Sprintf("span %.100q %v", span.Name(), spanErr))
				}
			}
		}
	}
	return b, nil
}

func (b *Batch) unmarshal(data []byte, encoding Encoding) (ptrace.Traces, error) {
	decode, repair := new(ptrace.ProtoUnmarshaler).UnmarshalTraces, padIDs
	if encoding == JSON {
		decode, repair = new(ptrace.JSONUnmarshaler).UnmarshalTraces, siftJSON
	}
	traces, err := decode(data)
	if err == nil {
		return traces, nil
	}
	// The decoder rejects the whole request because of a single id of the wrong size.
	repaired, repairErr := repair(data, func(reason string) { b.Reject(1, reason) })
	if repairErr != nil {
		return ptrace.Traces{}, err
	}
	return decode(repaired)
}

// add translates one span, or returns why it cannot be stored.
func (b *Batch) add(in ptrace.Span, from pcommon.Resource, resource agl.SpanResource) error {
	own, inherited := in.Attributes(), from.Attributes()
	rolloutID := identity(agl.AttrRolloutID, own, inherited)
	attemptID := identity(agl.AttrAttemptID, own, inherited)
	if rolloutID == "" || attemptID == "" {
		return fmt.Errorf("has no %s or no %s, neither itself nor in its resource", agl.AttrRolloutID, agl.AttrAttemptID)
	}
	attrs, err := b.growth.attributes(own)
	if err == nil {
		err = b.growth.charge(max(len(resource.Attributes)-MaxResource, 0)) // each span is stored with its resource
	}
	if err != nil {
		return err
	}
	traceID, spanID := in.TraceID(), in.SpanID()
	out := agl.Span{
		RolloutID:  rolloutID,
		AttemptID:  attemptID,
		SequenceID: sequenceID(own, inherited),
		TraceID:    hex.EncodeToString(traceID[:]),
		SpanID:     hex.EncodeToString(spanID[:]),
		Name:       text(in.Name()),
		Status:     status(in.Status()),
		Attributes: attrs,
		StartTime:  timestamp(in.StartTimestamp()),
		EndTime:    timestamp(in.EndTimestamp()),
		Resource:   resource,
	}
	out.Context = &agl.SpanContext{TraceID: out.TraceID, SpanID: out.SpanID}
	if parent := in.ParentSpanID(); !parent.IsEmpty() {
		out.ParentID = agl.Some(hex.EncodeToString(parent[:]))
	}
	for _, e := range in.Events().All() {
		if attrs, err = b.growth.attributes(e.Attributes()); err != nil {
			return err
		}
		out.Events = append(out.Events, agl.SpanEvent{Name: text(e.Name()), Attributes: attrs, Timestamp: timestamp(e.Timestamp())})
	}
	for _, l := range in.Links().All() {
		linkTrace, linkSpan := l.TraceID(), l.SpanID()
		link := agl.SpanLink{Context: agl.SpanContext{TraceID: hex.EncodeToString(linkTrace[:]), SpanID: hex.EncodeToString(linkSpan[:])}}
		if l.Attributes().Len() > 0 {
			if link.Attributes, err = b.growth.attributes(l.Attributes()); err != nil {
				return err
			}
		}
		out.Links = append(out.Links, link)
	}
	b.Spans = append(b.Spans, out)
	return nil
}

// Rejections counts the spans, or the data points of metrics, that cannot be stored.
type Rejections struct {
	Rejected int
	Reason   string // why the first of them was rejected
}

// Reject counts n more, and keeps the first reason.
func (r *Rejections) Reject(n int, reason string) {
	if r.Rejected == 0 {
		r.Reason = reason
	}
	r.Rejected += n
}

// identity returns the id in the first map that has one. An empty id counts as absent.
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

// text replaces invalid UTF-8, as in attributes. A store would refuse it, and the other spans of the attempt with it.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// maxSequenceID is the largest sequence id that every JSON reader represents exactly, and so the largest in a store.
const maxSequenceID = 1<<53 - 1

// sequenceID returns the sequence id in the first map that has one, 0 if it is not a positive integer up to maxSequenceID.
func sequenceID(maps ...pcommon.Map) int64 {
	for _, m := range maps {
		v, ok := m.Get(agl.AttrSpanSequenceID)
		if !ok {
			continue
		}
		id, err := strconv.ParseInt(strings.TrimSpace(v.AsString()), 10, 64)
		if err != nil || id < 0 || id > maxSequenceID {
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
		out.Description = agl.Some(text(s.Message()))
	}
	return out
}

// timestamp converts nanoseconds to seconds. 0 becomes null.
func timestamp(t pcommon.Timestamp) agl.Null[agl.Timestamp] {
	if t == 0 {
		return agl.Null[agl.Timestamp]{}
	}
	const second = 1_000_000_000
	return agl.Some(agl.Timestamp(float64(t/second) + float64(t%second)/second))
}
