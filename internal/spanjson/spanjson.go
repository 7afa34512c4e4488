// Package spanjson reads and writes spans faster than their own methods do. Spans are most of what a store reads, and nearly
// all of them have one form, which one walk over syntax that is known to be valid can take. Everything else (values of the
// wrong type, escapes, events, links, keys that are not ours) is left to agl.Span, whose decoder can explain what is wrong.
//
// The package knows the wire form of spans. It must not know where documents come from.
package spanjson

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// Parse reads a document that [agl.Span.AppendJSON] wrote, without checking its
// syntax again. The span shares the document's memory, which must not change.
func Parse(doc []byte, s *agl.Span) error {
	if parse(doc, s) {
		return nil
	}
	return s.UnmarshalJSONFrom(rawjson.NewDecoder(doc))
}

// Read reads the next value of a decoder as a span. input is all that the decoder reads, from its first byte: the span
// shares its memory, which must not change while the span is in use.
func Read(dec *jsontext.Decoder, input []byte, s *agl.Span) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	end := dec.InputOffset()
	err = Parse(input[end-int64(len(raw)):end:end], s)
	if field, ok := errors.AsType[*agl.FieldError](err); ok {
		field.Pointer = dec.StackPointer() + field.Pointer
	}
	return err
}

// Append appends the wire form of a span with the object that a function appends
// in place of its attributes, so that large ones are written only once.
func Append(dst []byte, s *agl.Span, attributes func(dst []byte) []byte) []byte {
	bare := *s
	bare.Attributes = []byte{0} // no JSON has a zero byte
	from := len(dst)
	dst = bare.AppendJSON(dst)
	at := from + bytes.IndexByte(dst[from:], 0)
	var room [1 << 10]byte
	rest := append(room[:0], dst[at+1:]...)
	return append(attributes(dst[:at]), rest...)
}

// parse reads valid JSON of the usual form and reports whether it had that form. The span shares doc's memory.
func parse(doc []byte, s *agl.Span) bool {
	*s = agl.Span{}
	return parseObject(doc, 16, func(name, value []byte) (int, bool) { return parseField(s, name, value) })
}

// parseObject calls field for each member of an object and reports whether each of the fields was given. field returns the
// index of the field; ok is false if it is not of the usual form.
func parseObject(object []byte, fields int, field func(name, value []byte) (index int, ok bool)) bool {
	given := 0
	for name, value := range rawjson.Members(object) {
		index, ok := field(name, value)
		if !ok {
			return false
		}
		given |= 1 << index
	}
	return given == 1<<fields-1
}

func parseField(s *agl.Span, name, value []byte) (field int, ok bool) {
	switch string(name) {
	case "rollout_id":
		return 0, parseString(value, &s.RolloutID)
	case "attempt_id":
		return 1, parseString(value, &s.AttemptID)
	case "sequence_id":
		i, err := strconv.ParseInt(string(value), 10, 64)
		s.SequenceID = i
		return 2, err == nil
	case "trace_id":
		return 3, parseString(value, &s.TraceID)
	case "span_id":
		return 4, parseString(value, &s.SpanID)
	case "parent_id":
		return 5, parseNullString(value, &s.ParentID)
	case "name":
		return 6, parseString(value, &s.Name)
	case "status":
		return 7, parseStatus(value, &s.Status)
	case "attributes":
		return 8, parseAttributes(value, &s.Attributes)
	case "events":
		return 9, string(value) == "[]"
	case "links":
		return 10, string(value) == "[]"
	case "start_time":
		return 11, parseTime(value, &s.StartTime)
	case "end_time":
		return 12, parseTime(value, &s.EndTime)
	case "context":
		return 13, parseContext(value, &s.Context)
	case "parent":
		return 14, parseContext(value, &s.Parent)
	case "resource":
		return 15, parseResource(value, &s.Resource)
	}
	return 0, false
}

// parseString takes a string without escapes.
func parseString(value []byte, s *string) bool {
	if value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return false
	}
	*s = string(value[1 : len(value)-1])
	return utf8.ValidString(*s)
}

func parseNullString(value []byte, s *agl.Null[string]) bool {
	*s = agl.Null[string]{}
	if value[0] == 'n' {
		return true
	}
	s.Valid = true
	return parseString(value, &s.V)
}

func parseTime(value []byte, t *agl.Null[agl.Timestamp]) bool {
	*t = agl.Null[agl.Timestamp]{}
	if value[0] == 'n' {
		return true
	}
	v, err := strconv.ParseFloat(string(value), 64)
	*t = agl.Some(agl.Timestamp(v))
	return err == nil
}

func parseAttributes(value []byte, a *agl.Attributes) bool {
	*a = value
	return value[0] == '{' && a.Validate() == nil
}

func parseStatus(value []byte, s *agl.SpanStatus) bool {
	*s = agl.SpanStatus{}
	for name, v := range rawjson.Members(value) {
		switch string(name) {
		case "status_code":
			switch string(v) {
			case `"UNSET"`:
				s.Code = agl.StatusUnset
			case `"OK"`:
				s.Code = agl.StatusOK
			case `"ERROR"`:
				s.Code = agl.StatusError
			default:
				return false
			}
		case "description":
			if !parseNullString(v, &s.Description) {
				return false
			}
		default:
			return false
		}
	}
	return s.Code != ""
}

func parseContext(value []byte, c **agl.SpanContext) bool {
	*c = nil
	if value[0] == 'n' {
		return true
	}
	context := new(agl.SpanContext)
	*c = context
	return parseObject(value, 4, func(name, v []byte) (int, bool) {
		switch string(name) {
		case "trace_id":
			return 0, parseString(v, &context.TraceID)
		case "span_id":
			return 1, parseString(v, &context.SpanID)
		case "is_remote":
			context.IsRemote = v[0] == 't'
			return 2, v[0] == 't' || v[0] == 'f'
		case "trace_state":
			context.TraceState = v
			return 3, v[0] == '{'
		}
		return 0, false
	})
}

func parseResource(value []byte, r *agl.SpanResource) bool {
	*r = agl.SpanResource{}
	return parseObject(value, 2, func(name, v []byte) (int, bool) {
		switch string(name) {
		case "attributes":
			return 0, parseAttributes(v, &r.Attributes)
		case "schema_url":
			return 1, parseString(v, &r.SchemaURL)
		}
		return 0, false
	})
}
