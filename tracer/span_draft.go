package tracer

import (
	"cmp"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/randomid"
)

// fromDraft returns the span that a draft describes, with generated ids and times where the draft has none.
func fromDraft(d agl.SpanDraft) agl.Span {
	if d.TraceID == "" {
		d.TraceID = randomid.Hex(16)
	}
	if d.SpanID == "" {
		d.SpanID = randomid.Hex(8)
	}
	if d.StartTime == 0 {
		d.StartTime = agl.TimestampOf(time.Now())
	}
	d.EndTime = cmp.Or(d.EndTime, d.StartTime)
	span := agl.Span{
		TraceID: d.TraceID, SpanID: d.SpanID, Name: d.Name,
		Status: d.Status, Attributes: d.Attributes, Events: d.Events,
		StartTime: agl.Some(d.StartTime), EndTime: agl.Some(d.EndTime),
		Context: &agl.SpanContext{TraceID: d.TraceID, SpanID: d.SpanID},
	}
	if d.ParentID != "" {
		span.ParentID = agl.Some(d.ParentID)
		span.Parent = &agl.SpanContext{TraceID: d.TraceID, SpanID: d.ParentID}
	}
	return span
}
