package agl

import (
	"bytes"
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// JSONAppender is implemented by every noun. AppendJSON appends the wire form:
// keys in the order of the fields, every key present, pass-through JSON copied
// byte for byte (json.Marshal gives an equal document, but may escape its
// strings anew).
type JSONAppender interface {
	AppendJSON(dst []byte) []byte
}

// JSONOptions are the options to decode documents of the wire with: duplicate
// names and invalid UTF-8 pass, as they do in the clients that send them.
func JSONOptions() json.Options { return jsonOptions }

var jsonOptions = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true))

// DecodeJSON decodes one document into v with [JSONOptions]. A value of the
// wrong kind is a [FieldError] in the chain of the error, a document that is
// not JSON a *jsontext.SyntacticError.
func DecodeJSON(data []byte, v any) error {
	return json.Unmarshal(data, v, JSONOptions())
}

// The null document, for fields whose nil means "leave as it is".
var nullJSON = jsontext.Value("null")

// NullJSON returns the document null.
func NullJSON() jsontext.Value { return nullJSON }

func appendString(dst []byte, s string) []byte {
	// An invalid byte becomes U+FFFD; the error only reports that.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

func appendNullString(dst []byte, s Null[string]) []byte {
	if !s.Valid {
		return append(dst, "null"...)
	}
	return appendString(dst, s.V)
}

func appendNullFloat[F ~float64](dst []byte, f Null[F]) []byte {
	if !f.Valid {
		return append(dst, "null"...)
	}
	return appendFloat(dst, float64(f.V))
}

func appendRaw(dst []byte, raw jsontext.Value, empty string) []byte {
	if len(raw) == 0 {
		return append(dst, empty...)
	}
	return append(dst, raw...)
}

// appendExtra appends the members of a raw object, each after a comma.
func appendExtra(dst []byte, extra jsontext.Value) []byte {
	inner := bytes.TrimSpace(extra)
	if len(inner) < 2 {
		return dst
	}
	inner = bytes.TrimSpace(inner[1 : len(inner)-1])
	if len(inner) == 0 {
		return dst
	}
	dst = append(dst, ',')
	return append(dst, inner...)
}

// marshalAppender serves the MarshalJSONTo methods.
func marshalAppender(enc *jsontext.Encoder, v JSONAppender) error {
	return enc.WriteValue(v.AppendJSON(nil))
}

// decodeObject calls field for each member; field reads the value. Members
// that field does not want must be skipped by it.
func decodeObject(dec *jsontext.Decoder, field func(name []byte) error) error {
	if dec.PeekKind() != '{' {
		return rejectValue(dec, "dict_type", "Input should be a valid dictionary")
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if bytes.IndexByte(name, '\\') < 0 {
			name = name[1 : len(name)-1]
		} else if name, err = jsontext.AppendUnquote(nil, name); err != nil {
			return err
		}
		if err := field(name); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// decodeArray calls element before each element; element reads it.
func decodeArray(dec *jsontext.Decoder, element func() error) error {
	if dec.PeekKind() != '[' {
		return rejectValue(dec, "list_type", "Input should be a valid list")
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		if err := element(); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// rejectValue reads the next value, so that the pointer names it, and returns
// the error that rejects it.
func rejectValue(dec *jsontext.Decoder, kind, message string) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	return &FieldError{Pointer: dec.StackPointer(), Type: kind, Message: message, Input: raw.Clone()}
}

// missingField rejects the object that has just been read.
func missingField(dec *jsontext.Decoder, name string) error {
	return &FieldError{Pointer: dec.StackPointer().AppendToken(name), Type: "missing", Message: "Field required"}
}

func readString(dec *jsontext.Decoder, s *string) error {
	if dec.PeekKind() != '"' {
		return rejectValue(dec, "string_type", "Input should be a valid string")
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	*s = tok.String()
	return nil
}

func readNullString(dec *jsontext.Decoder, s *Null[string]) error {
	if dec.PeekKind() == 'n' {
		*s = Null[string]{}
		return dec.SkipValue()
	}
	s.Valid = true
	return readString(dec, &s.V)
}

func readBool(dec *jsontext.Decoder, b *bool) error {
	if k := dec.PeekKind(); k != 't' && k != 'f' {
		return rejectValue(dec, "bool_type", "Input should be a valid boolean")
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	*b = tok.Bool()
	return nil
}

// readFloat takes a number or, as the reference does, a string that spells one.
func readFloat[F ~float64](dec *jsontext.Decoder, f *F) error {
	kind := dec.PeekKind()
	if kind != '0' && kind != '"' {
		return rejectValue(dec, "float_type", "Input should be a valid number")
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	text := raw
	if kind == '"' {
		text = raw[1 : len(raw)-1]
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return &FieldError{Pointer: dec.StackPointer(), Type: "float_parsing", Message: "Input should be a finite number", Input: raw.Clone()}
	}
	*f = F(v)
	return nil
}

func readNullFloat[F ~float64](dec *jsontext.Decoder, f *Null[F]) error {
	if dec.PeekKind() == 'n' {
		*f = Null[F]{}
		return dec.SkipValue()
	}
	f.Valid = true
	return readFloat(dec, &f.V)
}

// readInt takes an integer, a float without a fraction, or a string that
// spells one of them.
func readInt[I ~int | ~int64](dec *jsontext.Decoder, i *I) error {
	kind := dec.PeekKind()
	if kind != '0' && kind != '"' {
		return rejectValue(dec, "int_type", "Input should be a valid integer")
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	text := raw
	if kind == '"' {
		text = raw[1 : len(raw)-1]
	}
	v, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(string(text), 64)
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
			return &FieldError{Pointer: dec.StackPointer(), Type: "int_parsing", Message: "Input should be a valid integer", Input: raw.Clone()}
		}
		v = int64(f)
	}
	*i = I(v)
	return nil
}

// readRaw keeps the next value's bytes.
func readRaw(dec *jsontext.Decoder, raw *jsontext.Value) error {
	v, err := dec.ReadValue()
	if err != nil {
		return err
	}
	*raw = v.Clone()
	return nil
}

// readRawObject keeps the bytes of an object; null gives nil when it is allowed.
func readRawObject(dec *jsontext.Decoder, raw *jsontext.Value, nullable bool) error {
	switch dec.PeekKind() {
	case '{':
		return readRaw(dec, raw)
	case 'n':
		if nullable {
			*raw = nil
			return dec.SkipValue()
		}
	}
	return rejectValue(dec, "dict_type", "Input should be a valid dictionary")
}

// readEnum reads a string that must be one of allowed.
func readEnum[S ~string](dec *jsontext.Decoder, s *S, allowed []S) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if raw.Kind() == '"' {
		for _, a := range allowed {
			if string(raw[1:len(raw)-1]) == string(a) {
				*s = a
				return nil
			}
		}
	}
	return &FieldError{Pointer: dec.StackPointer(), Type: "literal_error", Message: "Input should be " + quotedList(allowed), Input: raw.Clone()}
}

// quotedList renders 'a', 'b' or 'c'.
func quotedList[S ~string](items []S) string {
	var b []byte
	for i, item := range items {
		switch {
		case i == 0:
		case i == len(items)-1:
			b = append(b, " or "...)
		default:
			b = append(b, ", "...)
		}
		b = append(b, '\'')
		b = append(b, item...)
		b = append(b, '\'')
	}
	return string(b)
}

func unquoteName(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	b, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return string(quoted[1 : len(quoted)-1])
	}
	return string(b)
}

// nameIs reports whether a quoted name stands for key.
func nameIs(quoted []byte, key string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:len(quoted)-1]) == key
	}
	return unquoteName(quoted) == key
}

// GetMember returns the raw value of key in a raw object, the last one if the
// key is repeated.
func GetMember(object jsontext.Value, key string) (jsontext.Value, bool) {
	var found jsontext.Value
	objectMembers(object, func(name, value []byte) bool {
		if nameIs(name, key) {
			found = value
		}
		return true
	})
	return found, found != nil
}

// SetMember returns object with key set to value, replacing it in place or
// appending it; the bytes of other members stay as they are. A nil, null or
// empty object counts as {}.
func SetMember(object jsontext.Value, key string, value jsontext.Value) jsontext.Value {
	out := make([]byte, 0, len(object)+len(key)+len(value)+8)
	out = append(out, '{')
	done := false
	add := func(name, v []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, name...)
		out = append(out, ':')
		out = append(out, v...)
	}
	objectMembers(object, func(name, v []byte) bool {
		switch {
		case !nameIs(name, key):
			add(name, v)
		case !done:
			add(name, value)
			done = true
		}
		return true
	})
	if !done {
		add(appendString(nil, key), value)
	}
	return append(out, '}')
}

// RemoveMember returns object without the members of that key; the bytes of
// the others stay as they are.
func RemoveMember(object jsontext.Value, key string) jsontext.Value {
	out := make([]byte, 0, len(object)+2)
	out = append(out, '{')
	objectMembers(object, func(name, value []byte) bool {
		if !nameIs(name, key) {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, name...)
			out = append(append(out, ':'), value...)
		}
		return true
	})
	return append(out, '}')
}
