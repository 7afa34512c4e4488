package agl

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Span is one recorded operation inside an attempt. Its key is (RolloutID,
// AttemptID, SpanID); SequenceID orders it among its rollout's spans.
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
	Extra      jsontext.Value // an object with the keys that are not ours, or nil
}

// StatusCode is OpenTelemetry's status of a span.
type StatusCode string

// The status codes.
const (
	StatusUnset StatusCode = "UNSET"
	StatusOK    StatusCode = "OK"
	StatusError StatusCode = "ERROR"
)

func statusCodes() []StatusCode { return []StatusCode{StatusUnset, StatusOK, StatusError} }

// SpanStatus says how an operation ended. The empty code is UNSET.
type SpanStatus struct {
	Code        StatusCode
	Description Null[string]
	Extra       jsontext.Value
}

// SpanEvent is something that happened at a moment of a span.
type SpanEvent struct {
	Name       string
	Attributes Attributes
	Timestamp  Null[Timestamp]
	Extra      jsontext.Value
}

// SpanLink points to another span.
type SpanLink struct {
	Context    SpanContext
	Attributes Attributes // nil is null here
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

// SpanResource describes who recorded a span.
type SpanResource struct {
	Attributes Attributes
	SchemaURL  string
}

// SpanDraft is a span before the runner has said which attempt it belongs to.
// Zero ids are made up, a zero start is now, a zero end is the start.
type SpanDraft struct {
	Name       string
	Attributes Attributes
	Status     SpanStatus
	Events     []SpanEvent
	StartTime  Timestamp
	EndTime    Timestamp
	TraceID    string
	SpanID     string
	ParentID   string
}

// AppendJSON appends the wire form, extra keys last.
func (s *Span) AppendJSON(dst []byte) []byte {
	return s.AppendJSONFunc(dst, func(dst []byte) []byte { return appendRaw(dst, jsontext.Value(s.Attributes), "{}") })
}

// AppendJSONFunc is AppendJSON with the object that a function appends in place
// of Attributes, so that large ones need no memory of their own before.
func (s *Span) AppendJSONFunc(dst []byte, attributes func(dst []byte) []byte) []byte {
	dst = append(dst, `{"rollout_id":`...)
	dst = appendString(dst, s.RolloutID)
	dst = append(dst, `,"attempt_id":`...)
	dst = appendString(dst, s.AttemptID)
	dst = append(dst, `,"sequence_id":`...)
	dst = appendInt(dst, s.SequenceID)
	dst = append(dst, `,"trace_id":`...)
	dst = appendString(dst, s.TraceID)
	dst = append(dst, `,"span_id":`...)
	dst = appendString(dst, s.SpanID)
	dst = append(dst, `,"parent_id":`...)
	dst = appendNullString(dst, s.ParentID)
	dst = append(dst, `,"name":`...)
	dst = appendString(dst, s.Name)
	dst = append(dst, `,"status":`...)
	dst = s.Status.AppendJSON(dst)
	dst = append(dst, `,"attributes":`...)
	dst = attributes(dst)
	dst = append(dst, `,"events":[`...)
	for i := range s.Events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = s.Events[i].AppendJSON(dst)
	}
	dst = append(dst, `],"links":[`...)
	for i := range s.Links {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = s.Links[i].AppendJSON(dst)
	}
	dst = append(dst, `],"start_time":`...)
	dst = appendNullFloat(dst, s.StartTime)
	dst = append(dst, `,"end_time":`...)
	dst = appendNullFloat(dst, s.EndTime)
	dst = append(dst, `,"context":`...)
	dst = appendNullContext(dst, s.Context)
	dst = append(dst, `,"parent":`...)
	dst = appendNullContext(dst, s.Parent)
	dst = append(dst, `,"resource":`...)
	dst = s.Resource.AppendJSON(dst)
	dst = appendExtra(dst, s.Extra)
	return append(dst, '}')
}

// MarshalJSONTo writes the wire form.
func (s *Span) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, s) }

// spanFields are the keys that every span on the wire must have.
var spanFields = [...]string{
	"rollout_id", "attempt_id", "sequence_id", "trace_id", "span_id", "parent_id", "name", "status",
	"attributes", "events", "links", "start_time", "end_time", "context", "parent", "resource",
}

// decode reads the wire form, whatever it is, and explains what is wrong.
func (s *Span) decode(dec *jsontext.Decoder) error {
	*s = Span{}
	var given uint32
	err := decodeObject(dec, func(name []byte) error {
		if i := spanField(name); i >= 0 {
			given |= 1 << i
			return s.readField(dec, i)
		}
		return readExtra(dec, name, &s.Extra)
	})
	if err != nil {
		return err
	}
	for i, f := range spanFields {
		if given&(1<<i) == 0 {
			return missingField(dec, f)
		}
	}
	return nil
}

func (s *Span) readField(dec *jsontext.Decoder, field int) error {
	switch spanFields[field] {
	case "rollout_id":
		return readString(dec, &s.RolloutID)
	case "attempt_id":
		return readString(dec, &s.AttemptID)
	case "sequence_id":
		return readInt(dec, &s.SequenceID)
	case "trace_id":
		return readString(dec, &s.TraceID)
	case "span_id":
		return readString(dec, &s.SpanID)
	case "parent_id":
		return readNullString(dec, &s.ParentID)
	case "name":
		return readString(dec, &s.Name)
	case "status":
		return s.Status.UnmarshalJSONFrom(dec)
	case "attributes":
		return s.Attributes.UnmarshalJSONFrom(dec)
	case "events":
		s.Events = nil
		return decodeArray(dec, func() error {
			var e SpanEvent
			err := e.UnmarshalJSONFrom(dec)
			s.Events = append(s.Events, e)
			return err
		})
	case "links":
		s.Links = nil
		return decodeArray(dec, func() error {
			var l SpanLink
			err := l.UnmarshalJSONFrom(dec)
			s.Links = append(s.Links, l)
			return err
		})
	case "start_time":
		return readNullFloat(dec, &s.StartTime)
	case "end_time":
		return readNullFloat(dec, &s.EndTime)
	case "context":
		return readNullContext(dec, &s.Context)
	case "parent":
		return readNullContext(dec, &s.Parent)
	default:
		return s.Resource.UnmarshalJSONFrom(dec)
	}
}

// readExtra keeps a member whose key is not ours.
func readExtra(dec *jsontext.Decoder, name []byte, extra *jsontext.Value) error {
	key := bytes.Clone(name)
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	*extra = SetMember(*extra, string(key), value)
	return nil
}

// AppendJSON appends the wire form.
func (s *SpanStatus) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"status_code":`...)
	code := s.Code
	if code == "" {
		code = StatusUnset
	}
	dst = appendString(dst, string(code))
	dst = append(dst, `,"description":`...)
	dst = appendNullString(dst, s.Description)
	dst = appendExtra(dst, s.Extra)
	return append(dst, '}')
}

// UnmarshalJSONFrom reads the wire form.
func (s *SpanStatus) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*s = SpanStatus{}
	err := decodeObject(dec, func(name []byte) error {
		switch string(name) {
		case "status_code":
			return readEnum(dec, &s.Code, statusCodes())
		case "description":
			return readNullString(dec, &s.Description)
		default:
			return readExtra(dec, name, &s.Extra)
		}
	})
	if err == nil && s.Code == "" {
		err = missingField(dec, "status_code")
	}
	return err
}

// AppendJSON appends the wire form.
func (e *SpanEvent) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"name":`...)
	dst = appendString(dst, e.Name)
	dst = append(dst, `,"attributes":`...)
	dst = appendRaw(dst, jsontext.Value(e.Attributes), "{}")
	dst = append(dst, `,"timestamp":`...)
	dst = appendNullFloat(dst, e.Timestamp)
	dst = appendExtra(dst, e.Extra)
	return append(dst, '}')
}

// UnmarshalJSONFrom reads the wire form.
func (e *SpanEvent) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*e = SpanEvent{}
	named := false
	err := decodeObject(dec, func(name []byte) error {
		switch string(name) {
		case "name":
			named = true
			return readString(dec, &e.Name)
		case "attributes":
			return e.Attributes.UnmarshalJSONFrom(dec)
		case "timestamp":
			return readNullFloat(dec, &e.Timestamp)
		default:
			return readExtra(dec, name, &e.Extra)
		}
	})
	switch {
	case err != nil:
		return err
	case !named:
		return missingField(dec, "name")
	case e.Attributes == nil:
		return missingField(dec, "attributes")
	}
	return nil
}

// AppendJSON appends the wire form.
func (l *SpanLink) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"context":`...)
	dst = l.Context.AppendJSON(dst)
	dst = append(dst, `,"attributes":`...)
	dst = appendRaw(dst, jsontext.Value(l.Attributes), "null")
	dst = appendExtra(dst, l.Extra)
	return append(dst, '}')
}

// UnmarshalJSONFrom reads the wire form.
func (l *SpanLink) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*l = SpanLink{}
	given := false
	err := decodeObject(dec, func(name []byte) error {
		switch string(name) {
		case "context":
			given = true
			return l.Context.UnmarshalJSONFrom(dec)
		case "attributes":
			if dec.PeekKind() == 'n' {
				return dec.SkipValue()
			}
			return l.Attributes.UnmarshalJSONFrom(dec)
		default:
			return readExtra(dec, name, &l.Extra)
		}
	})
	if err == nil && !given {
		err = missingField(dec, "context")
	}
	return err
}

func appendNullContext(dst []byte, c *SpanContext) []byte {
	if c == nil {
		return append(dst, "null"...)
	}
	return c.AppendJSON(dst)
}

func readNullContext(dec *jsontext.Decoder, c **SpanContext) error {
	if dec.PeekKind() == 'n' {
		*c = nil
		return dec.SkipValue()
	}
	*c = new(SpanContext)
	return (*c).UnmarshalJSONFrom(dec)
}

// AppendJSON appends the wire form.
func (c *SpanContext) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"trace_id":`...)
	dst = appendString(dst, c.TraceID)
	dst = append(dst, `,"span_id":`...)
	dst = appendString(dst, c.SpanID)
	if c.IsRemote {
		dst = append(dst, `,"is_remote":true,"trace_state":`...)
	} else {
		dst = append(dst, `,"is_remote":false,"trace_state":`...)
	}
	dst = appendRaw(dst, c.TraceState, "{}")
	dst = appendExtra(dst, c.Extra)
	return append(dst, '}')
}

// UnmarshalJSONFrom reads the wire form; all four keys are required.
func (c *SpanContext) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*c = SpanContext{}
	fields := [...]string{"trace_id", "span_id", "is_remote", "trace_state"}
	var given [len(fields)]bool
	err := decodeObject(dec, func(name []byte) error {
		switch string(name) {
		case fields[0]:
			given[0] = true
			return readString(dec, &c.TraceID)
		case fields[1]:
			given[1] = true
			return readString(dec, &c.SpanID)
		case fields[2]:
			given[2] = true
			return readBool(dec, &c.IsRemote)
		case fields[3]:
			given[3] = true
			return readRawObject(dec, &c.TraceState, false)
		default:
			return readExtra(dec, name, &c.Extra)
		}
	})
	if err != nil {
		return err
	}
	for i, ok := range given {
		if !ok {
			return missingField(dec, fields[i])
		}
	}
	return nil
}

// AppendJSON appends the wire form.
func (r *SpanResource) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"attributes":`...)
	dst = appendRaw(dst, jsontext.Value(r.Attributes), "{}")
	dst = append(dst, `,"schema_url":`...)
	dst = appendString(dst, r.SchemaURL)
	return append(dst, '}')
}

// UnmarshalJSONFrom reads the wire form; keys that are not ours are dropped.
func (r *SpanResource) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*r = SpanResource{}
	urlGiven := false
	err := decodeObject(dec, func(name []byte) error {
		switch string(name) {
		case "attributes":
			return r.Attributes.UnmarshalJSONFrom(dec)
		case "schema_url":
			urlGiven = true
			return readString(dec, &r.SchemaURL)
		default:
			return dec.SkipValue()
		}
	})
	switch {
	case err != nil:
		return err
	case r.Attributes == nil:
		return missingField(dec, "attributes")
	case !urlGiven:
		return missingField(dec, "schema_url")
	}
	return nil
}
