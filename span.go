package agl

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// Span is one recorded operation of an attempt. Its key is (RolloutID, AttemptID,
// SpanID). SequenceID orders the spans of a rollout.
type Span struct {
	RolloutID  string
	AttemptID  string
	SequenceID int64
	TraceID    string // free text; 32 hex digits from OpenTelemetry
	SpanID     string // free text; 16 hex digits from OpenTelemetry
	ParentID   Null[string]
	Name       string
	Status     SpanStatus
	Attributes Attributes
	Events     []SpanEvent
	Links      []SpanLink
	StartTime  Null[Timestamp]
	EndTime    Null[Timestamp]
	Context    *SpanContext
	Parent     *SpanContext
	Resource   SpanResource
	Extra      jsontext.Value // an object with the members that agl does not know; nil is none
}

// StatusCode is the status of a span in OpenTelemetry.
type StatusCode string

// The status codes.
const (
	StatusUnset StatusCode = "UNSET"
	StatusOK    StatusCode = "OK"
	StatusError StatusCode = "ERROR"
)

func statusCodes() []StatusCode { return []StatusCode{StatusUnset, StatusOK, StatusError} }

// SpanStatus says how an operation ended. An empty Code is StatusUnset.
type SpanStatus struct {
	Code        StatusCode
	Description Null[string]
	Extra       jsontext.Value
}

// SpanEvent is something that happened during a span.
type SpanEvent struct {
	Name       string
	Attributes Attributes
	Timestamp  Null[Timestamp]
	Extra      jsontext.Value
}

// SpanLink points to another span.
type SpanLink struct {
	Context    SpanContext
	Attributes Attributes // nil is null
	Extra      jsontext.Value
}

// SpanContext identifies a span across processes.
type SpanContext struct {
	TraceID    string
	SpanID     string
	IsRemote   bool
	TraceState jsontext.Value // an object of strings; nil is {}
	Extra      jsontext.Value
}

// SpanResource describes the program that recorded a span.
type SpanResource struct {
	Attributes Attributes
	SchemaURL  string
}

// SpanDraft is a span that does not belong to an attempt yet. Empty ids are
// generated, a zero StartTime is the present, and a zero EndTime is StartTime.
type SpanDraft struct {
	Name       string      `json:"name"`
	Attributes Attributes  `json:"attributes"`
	Status     SpanStatus  `json:"status"`
	Events     []SpanEvent `json:"events,omitempty"`
	StartTime  Timestamp   `json:"start_time,omitzero"`
	EndTime    Timestamp   `json:"end_time,omitzero"`
	TraceID    string      `json:"trace_id,omitzero"`
	SpanID     string      `json:"span_id,omitzero"`
	ParentID   string      `json:"parent_id,omitzero"`
}

func (s *Span) members(w *wireForm) *wireForm {
	w.string("rollout_id", &s.RolloutID)
	w.string("attempt_id", &s.AttemptID)
	integer(w, "sequence_id", &s.SequenceID)
	w.string("trace_id", &s.TraceID)
	w.string("span_id", &s.SpanID)
	w.nullString("parent_id", &s.ParentID)
	w.string("name", &s.Name)
	nested(w, "status", &s.Status)
	w.attributes("attributes", &s.Attributes)
	nestedList(w, "events", &s.Events)
	nestedList(w, "links", &s.Links)
	nullNumber(w, "start_time", &s.StartTime)
	nullNumber(w, "end_time", &s.EndTime)
	nullNested(w, "context", &s.Context)
	nullNested(w, "parent", &s.Parent)
	nested(w, "resource", &s.Resource)
	w.extra(&s.Extra)
	return w
}

func (s *SpanStatus) members(w *wireForm) *wireForm {
	field(w, "status_code", &s.Code,
		func(dst []byte, c StatusCode) []byte { return rawjson.AppendString(dst, cmp.Or(c, StatusUnset)) },
		func(in rawjson.Reader, c *StatusCode) error { return rawjson.Enum(in, c, statusCodes()) })
	w.nullString("description", &s.Description)
	w.extra(&s.Extra)
	return w
}

func (e *SpanEvent) members(w *wireForm) *wireForm {
	w.string("name", &e.Name)
	w.attributes("attributes", &e.Attributes)
	nullNumber(w, "timestamp", &e.Timestamp)
	w.extra(&e.Extra)
	return w
}

func (l *SpanLink) members(w *wireForm) *wireForm {
	nested(w, "context", &l.Context)
	field(w, "attributes", &l.Attributes, rawjson.AppendRaw, func(in rawjson.Reader, a *Attributes) error {
		if null, err := in.Null(); null || err != nil {
			return err
		}
		return a.UnmarshalJSONFrom(in.Decoder)
	})
	w.extra(&l.Extra)
	return w
}

func (c *SpanContext) members(w *wireForm) *wireForm {
	w.string("trace_id", &c.TraceID)
	w.string("span_id", &c.SpanID)
	field(w, "is_remote", &c.IsRemote, strconv.AppendBool, rawjson.Reader.Bool)
	w.dict("trace_state", &c.TraceState)
	w.extra(&c.Extra)
	return w
}

func (r *SpanResource) members(w *wireForm) *wireForm {
	w.attributes("attributes", &r.Attributes)
	w.string("schema_url", &r.SchemaURL)
	return w
}
