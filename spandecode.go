package agl

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Spans are most of what a store reads, so they have a decoder of their own: it
// takes the form that nearly all spans have, by one walk over syntax that is
// known to be valid, and leaves everything else (wrong kinds, escapes, events,
// links, foreign keys) to the decoder that can explain what is wrong.

// UnmarshalJSONFrom reads the wire form. All keys are required; keys that are
// not ours are kept.
func (s *Span) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return s.unmarshal(dec, jsontext.Value.Clone)
}

// UnmarshalShared is UnmarshalJSONFrom without a copy: input is all that dec
// reads, from its beginning, and the span refers to it, so it must not change
// while the span is in use.
func (s *Span) UnmarshalShared(dec *jsontext.Decoder, input []byte) error {
	return s.unmarshal(dec, func(raw jsontext.Value) jsontext.Value {
		end := dec.InputOffset()
		return input[end-int64(len(raw)) : end : end]
	})
}

// unmarshal reads the wire form out of what keep makes of it, which must stay.
func (s *Span) unmarshal(dec *jsontext.Decoder, keep func(raw jsontext.Value) jsontext.Value) error {
	if dec.PeekKind() != '{' {
		return rejectValue(dec, "dict_type", "Input should be a valid dictionary")
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	doc := keep(raw)
	if s.parse(doc) {
		return nil
	}
	err = s.decode(jsontext.NewDecoder(bytes.NewBuffer(doc), JSONOptions()))
	if field, ok := errors.AsType[*FieldError](err); ok {
		field.Pointer = dec.StackPointer() + field.Pointer
	}
	return err
}

// ParseStored reads a document that AppendJSON wrote, without checking its
// syntax again. The span refers to the document, which must not change.
func (s *Span) ParseStored(doc []byte) error {
	if s.parse(doc) {
		return nil
	}
	return s.decode(jsontext.NewDecoder(bytes.NewBuffer(doc), JSONOptions()))
}

// parse reads valid JSON of the usual form and reports whether it was that. The
// span refers to doc.
func (s *Span) parse(doc []byte) bool {
	*s = Span{}
	var given uint32
	usual := true
	objectMembers(doc, func(name, value []byte) bool {
		i := spanField(name[1 : len(name)-1])
		usual = i >= 0 && s.parseField(i, value)
		given |= 1 << max(i, 0)
		return usual
	})
	return usual && given == 1<<len(spanFields)-1
}

// spanField returns the index of a key in spanFields, or -1.
func spanField(name []byte) int {
	for i := range spanFields {
		if string(name) == spanFields[i] {
			return i
		}
	}
	return -1
}

func (s *Span) parseField(field int, value []byte) bool {
	switch spanFields[field] {
	case "rollout_id":
		return parseString(value, &s.RolloutID)
	case "attempt_id":
		return parseString(value, &s.AttemptID)
	case "sequence_id":
		i, err := strconv.ParseInt(string(value), 10, 64)
		s.SequenceID = i
		return err == nil
	case "trace_id":
		return parseString(value, &s.TraceID)
	case "span_id":
		return parseString(value, &s.SpanID)
	case "parent_id":
		return parseNullString(value, &s.ParentID)
	case "name":
		return parseString(value, &s.Name)
	case "status":
		return s.Status.parse(value)
	case "attributes":
		return parseAttributes(value, &s.Attributes)
	case "events", "links":
		return string(value) == "[]"
	case "start_time":
		return parseNullFloat(value, &s.StartTime)
	case "end_time":
		return parseNullFloat(value, &s.EndTime)
	case "context":
		return parseContext(value, &s.Context)
	case "parent":
		return parseContext(value, &s.Parent)
	default:
		return s.Resource.parse(value)
	}
}

// parseString takes a string without escapes.
func parseString(value []byte, s *string) bool {
	if value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return false
	}
	*s = string(value[1 : len(value)-1])
	return utf8.ValidString(*s)
}

func parseNullString(value []byte, s *Null[string]) bool {
	if value[0] == 'n' {
		return true
	}
	s.Valid = true
	return parseString(value, &s.V)
}

func parseNullFloat(value []byte, f *Null[Timestamp]) bool {
	if value[0] == 'n' {
		return true
	}
	v, err := strconv.ParseFloat(string(value), 64)
	*f = Some(Timestamp(v))
	return err == nil
}

func parseAttributes(value []byte, a *Attributes) bool {
	if value[0] != '{' {
		return false
	}
	usual := true
	objectMembers(value, func(_, v []byte) bool {
		usual = checkAttributeValue(v)
		return usual
	})
	*a = value
	return usual
}

func (s *SpanStatus) parse(value []byte) bool {
	usual := value[0] == '{'
	objectMembers(value, func(name, v []byte) bool {
		switch string(name) {
		case `"status_code"`:
			switch string(v) {
			case `"UNSET"`:
				s.Code = StatusUnset
			case `"OK"`:
				s.Code = StatusOK
			case `"ERROR"`:
				s.Code = StatusError
			}
		case `"description"`:
			usual = parseNullString(v, &s.Description)
		default:
			usual = false
		}
		return usual
	})
	return usual && s.Code != ""
}

func parseContext(value []byte, c **SpanContext) bool {
	if value[0] == 'n' {
		return true
	}
	const all = 1<<4 - 1
	given := 0
	*c = new(SpanContext)
	usual := value[0] == '{'
	objectMembers(value, func(name, v []byte) bool {
		switch string(name) {
		case `"trace_id"`:
			given |= 1
			usual = parseString(v, &(*c).TraceID)
		case `"span_id"`:
			given |= 2
			usual = parseString(v, &(*c).SpanID)
		case `"is_remote"`:
			given |= 4
			(*c).IsRemote = v[0] == 't'
			usual = v[0] == 't' || v[0] == 'f'
		case `"trace_state"`:
			given |= 8
			(*c).TraceState = v
			usual = v[0] == '{'
		default:
			usual = false
		}
		return usual
	})
	return usual && given == all
}

func (r *SpanResource) parse(value []byte) bool {
	const all = 1<<2 - 1
	given := 0
	usual := value[0] == '{'
	objectMembers(value, func(name, v []byte) bool {
		switch string(name) {
		case `"attributes"`:
			given |= 1
			usual = parseAttributes(v, &r.Attributes)
		case `"schema_url"`:
			given |= 2
			usual = parseString(v, &r.SchemaURL)
		default:
			usual = false
		}
		return usual
	})
	return usual && given == all
}
