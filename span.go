package agl

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
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

// AppendJSON appends the wire form, the keys of Extra last.
func (s *Span) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.String("rollout_id", s.RolloutID)
	o.String("attempt_id", s.AttemptID)
	o.Int("sequence_id", s.SequenceID)
	o.String("trace_id", s.TraceID)
	o.String("span_id", s.SpanID)
	nullString(&o, "parent_id", s.ParentID)
	o.String("name", s.Name)
	o.Key("status")
	o = s.Status.AppendJSON(o)
	o.Dict("attributes", s.Attributes)
	o.Key("events")
	o = rawjson.AppendList(o, s.Events)
	o.Key("links")
	o = rawjson.AppendList(o, s.Links)
	nullTime(&o, "start_time", s.StartTime)
	nullTime(&o, "end_time", s.EndTime)
	appendContext(&o, "context", s.Context)
	appendContext(&o, "parent", s.Parent)
	o.Key("resource")
	o = s.Resource.AppendJSON(o)
	o.Members(s.Extra)
	return o.End()
}

func appendContext(o *rawjson.Object, name string, c *SpanContext) {
	o.Key(name)
	if c == nil {
		*o = append(*o, "null"...)
		return
	}
	*o = c.AppendJSON(*o)
}

// MarshalJSON returns the wire form.
func (s Span) MarshalJSON() ([]byte, error) { return s.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (s *Span) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, s) }

// UnmarshalJSONFrom reads the wire form. All keys are required; keys that are
// not ours go to Extra.
func (s *Span) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*s = Span{}
	in := reader(dec)
	return in.Object(func(name []byte) error { return s.readField(in, name) },
		"rollout_id", "attempt_id", "sequence_id", "trace_id", "span_id", "parent_id", "name", "status",
		"attributes", "events", "links", "start_time", "end_time", "context", "parent", "resource")
}

func (s *Span) readField(in rawjson.Reader, name []byte) error {
	dec := in.Decoder
	switch string(name) {
	case "rollout_id":
		return in.String(&s.RolloutID)
	case "attempt_id":
		return in.String(&s.AttemptID)
	case "sequence_id":
		return rawjson.Int(in, &s.SequenceID)
	case "trace_id":
		return in.String(&s.TraceID)
	case "span_id":
		return in.String(&s.SpanID)
	case "parent_id":
		return s.ParentID.UnmarshalJSONFrom(dec)
	case "name":
		return in.String(&s.Name)
	case "status":
		return s.Status.UnmarshalJSONFrom(dec)
	case "attributes":
		return s.Attributes.UnmarshalJSONFrom(dec)
	case "events":
		s.Events = nil
		return in.List(func() error {
			var e SpanEvent
			err := e.UnmarshalJSONFrom(dec)
			s.Events = append(s.Events, e)
			return err
		})
	case "links":
		s.Links = nil
		return in.List(func() error {
			var l SpanLink
			err := l.UnmarshalJSONFrom(dec)
			s.Links = append(s.Links, l)
			return err
		})
	case "start_time":
		return s.StartTime.UnmarshalJSONFrom(dec)
	case "end_time":
		return s.EndTime.UnmarshalJSONFrom(dec)
	case "context":
		return readContext(in, &s.Context)
	case "parent":
		return readContext(in, &s.Parent)
	case "resource":
		return s.Resource.UnmarshalJSONFrom(dec)
	default:
		return readExtra(dec, name, &s.Extra)
	}
}

func readContext(in rawjson.Reader, c **SpanContext) error {
	*c = nil
	if null, err := in.Null(); null || err != nil {
		return err
	}
	*c = new(SpanContext)
	return (*c).UnmarshalJSONFrom(in.Decoder)
}

// readExtra keeps a member whose key is not ours.
func readExtra(dec *jsontext.Decoder, name []byte, extra *jsontext.Value) error {
	key := string(name)
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	*extra = rawjson.Set(*extra, key, value)
	return nil
}

// AppendJSON appends the wire form.
func (s *SpanStatus) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.String("status_code", string(cmp.Or(s.Code, StatusUnset)))
	nullString(&o, "description", s.Description)
	o.Members(s.Extra)
	return o.End()
}

// MarshalJSON returns the wire form.
func (s SpanStatus) MarshalJSON() ([]byte, error) { return s.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (s *SpanStatus) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, s) }

// UnmarshalJSONFrom reads the wire form.
func (s *SpanStatus) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*s = SpanStatus{}
	in := reader(dec)
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "status_code":
			return rawjson.Enum(in, &s.Code, statusCodes())
		case "description":
			return s.Description.UnmarshalJSONFrom(dec)
		default:
			return readExtra(dec, name, &s.Extra)
		}
	}, "status_code")
}

// AppendJSON appends the wire form.
func (e *SpanEvent) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.String("name", e.Name)
	o.Dict("attributes", e.Attributes)
	nullTime(&o, "timestamp", e.Timestamp)
	o.Members(e.Extra)
	return o.End()
}

// MarshalJSON returns the wire form.
func (e SpanEvent) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (e *SpanEvent) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, e) }

// UnmarshalJSONFrom reads the wire form.
func (e *SpanEvent) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*e = SpanEvent{}
	in := reader(dec)
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "name":
			return in.String(&e.Name)
		case "attributes":
			return e.Attributes.UnmarshalJSONFrom(dec)
		case "timestamp":
			return e.Timestamp.UnmarshalJSONFrom(dec)
		default:
			return readExtra(dec, name, &e.Extra)
		}
	}, "name", "attributes")
}

// AppendJSON appends the wire form.
func (l *SpanLink) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.Value("context", &l.Context)
	o.Raw("attributes", l.Attributes)
	o.Members(l.Extra)
	return o.End()
}

// MarshalJSON returns the wire form.
func (l SpanLink) MarshalJSON() ([]byte, error) { return l.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (l *SpanLink) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, l) }

// UnmarshalJSONFrom reads the wire form.
func (l *SpanLink) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*l = SpanLink{}
	in := reader(dec)
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "context":
			return l.Context.UnmarshalJSONFrom(dec)
		case "attributes":
			if null, err := in.Null(); null || err != nil {
				return err
			}
			return l.Attributes.UnmarshalJSONFrom(dec)
		default:
			return readExtra(dec, name, &l.Extra)
		}
	}, "context")
}

// AppendJSON appends the wire form.
func (c *SpanContext) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.String("trace_id", c.TraceID)
	o.String("span_id", c.SpanID)
	o.Bool("is_remote", c.IsRemote)
	o.Dict("trace_state", c.TraceState)
	o.Members(c.Extra)
	return o.End()
}

// MarshalJSON returns the wire form.
func (c SpanContext) MarshalJSON() ([]byte, error) { return c.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (c *SpanContext) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, c) }

// UnmarshalJSONFrom reads the wire form; all four keys are required.
func (c *SpanContext) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*c = SpanContext{}
	in := reader(dec)
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "trace_id":
			return in.String(&c.TraceID)
		case "span_id":
			return in.String(&c.SpanID)
		case "is_remote":
			return in.Bool(&c.IsRemote)
		case "trace_state":
			return in.RawDict(&c.TraceState)
		default:
			return readExtra(dec, name, &c.Extra)
		}
	}, "trace_id", "span_id", "is_remote", "trace_state")
}

// AppendJSON appends the wire form.
func (r *SpanResource) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.Dict("attributes", r.Attributes)
	o.String("schema_url", r.SchemaURL)
	return o.End()
}

// MarshalJSON returns the wire form.
func (r SpanResource) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (r *SpanResource) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, r) }

// UnmarshalJSONFrom reads the wire form. Keys that are not ours are dropped.
func (r *SpanResource) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*r = SpanResource{}
	in := reader(dec)
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "attributes":
			return r.Attributes.UnmarshalJSONFrom(dec)
		case "schema_url":
			return in.String(&r.SchemaURL)
		default:
			return dec.SkipValue()
		}
	}, "attributes", "schema_url")
}
