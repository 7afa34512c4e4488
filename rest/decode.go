package rest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// unmarshaler is implemented by request envelopes and by the nouns.
type unmarshaler interface {
	UnmarshalJSONFrom(dec *jsontext.Decoder) error
}

// decodeDocument reads exactly one document out of dec.
func decodeDocument(dec *jsontext.Decoder, v unmarshaler) error {
	err := v.UnmarshalJSONFrom(dec)
	if errors.Is(err, io.EOF) { // nothing but white space
		return &jsontext.SyntacticError{ByteOffset: dec.InputOffset(), Err: io.ErrUnexpectedEOF}
	}
	if err != nil {
		return err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = &jsontext.SyntacticError{ByteOffset: dec.InputOffset(), Err: errors.New("extra data")}
		}
		return err
	}
	return nil
}

// readObject calls field for each member of an object; field reads or skips
// the value.
func readObject(dec *jsontext.Decoder, field func(name string) error) error {
	if dec.PeekKind() != '{' {
		return reject(dec, "model_attributes_type", "Input should be a valid dictionary or object to extract fields from")
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != '}' {
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		if err := field(tok.String()); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// readList calls element for each element of an array; element reads it.
func readList(dec *jsontext.Decoder, element func() error) error {
	if dec.PeekKind() != '[' {
		return reject(dec, "list_type", "Input should be a valid list")
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

// reject reads the next value, so that the pointer names it, and returns the
// error that rejects it.
func reject(dec *jsontext.Decoder, kind, message string) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	return &agl.FieldError{Pointer: dec.StackPointer(), Type: kind, Message: message, Input: raw.Clone()}
}

// missing rejects the object that has just been read.
func missing(dec *jsontext.Decoder, name string) error {
	return &agl.FieldError{Pointer: dec.StackPointer().AppendToken(name), Type: "missing", Message: "Field required"}
}

func readString(dec *jsontext.Decoder, s *string) error {
	if dec.PeekKind() != '"' {
		return reject(dec, "string_type", "Input should be a valid string")
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	*s = tok.String()
	return nil
}

func readNullString(dec *jsontext.Decoder, s *agl.Null[string]) error {
	if dec.PeekKind() == 'n' {
		*s = agl.Null[string]{}
		return dec.SkipValue()
	}
	s.Valid = true
	return readString(dec, &s.V)
}

// readOptional reads a string, or null as the empty one.
func readOptional(dec *jsontext.Decoder, s *string) error {
	var n agl.Null[string]
	err := readNullString(dec, &n)
	*s = n.V
	return err
}

func readBool(dec *jsontext.Decoder, b *bool) error {
	if k := dec.PeekKind(); k != 't' && k != 'f' {
		return reject(dec, "bool_type", "Input should be a valid boolean")
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	*b = tok.Bool()
	return nil
}

// The wordings of the reference for numbers that are none.
const (
	notAnInt       = "Input should be a valid integer"
	notParsedInt   = notAnInt + ", unable to parse string as an integer"
	notWholeInt    = notAnInt + ", got a number with a fractional part"
	notAFloat      = "Input should be a valid number"
	notParsedFloat = notAFloat + ", unable to parse string as a number"
	notFinite      = "Input should be a finite number"
)

// readInt takes an integer, a float without a fraction, or a string that spells
// an integer.
func readInt(dec *jsontext.Decoder, i *int) error {
	kind := dec.PeekKind()
	if kind != '0' && kind != '"' {
		return reject(dec, "int_type", notAnInt)
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	fail := func(kind, message string) error {
		return &agl.FieldError{Pointer: dec.StackPointer(), Type: kind, Message: message, Input: raw.Clone()}
	}
	if kind == '"' {
		v, ok := parseInt(string(raw[1 : len(raw)-1]))
		if !ok {
			return fail("int_parsing", notParsedInt)
		}
		*i = v
		return nil
	}
	if v, err := strconv.Atoi(string(raw)); err == nil {
		*i = v
		return nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil || math.Abs(f) >= 1<<62:
		return fail("int_parsing_size", "Unable to parse input string as an integer, exceeded maximum size")
	case f != math.Trunc(f):
		return fail("int_from_float", notWholeInt)
	}
	*i = int(f)
	return nil
}

// parseInt reads an integer as the reference reads one out of a string.
func parseInt(s string) (int, bool) {
	s = strings.TrimSuffix(strings.TrimSpace(s), ".0")
	v, err := strconv.Atoi(s)
	return v, err == nil
}

func readFloat(dec *jsontext.Decoder, f *float64) error {
	kind := dec.PeekKind()
	if kind != '0' && kind != '"' {
		return reject(dec, "float_type", notAFloat)
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	text := raw
	if kind == '"' {
		text = raw[1 : len(raw)-1]
	}
	v, err := strconv.ParseFloat(string(bytes.TrimSpace(text)), 64)
	switch {
	case math.IsInf(v, 0) || math.IsNaN(v):
		return &agl.FieldError{Pointer: dec.StackPointer(), Type: "finite_number", Message: notFinite, Input: raw.Clone()}
	case err != nil:
		return &agl.FieldError{Pointer: dec.StackPointer(), Type: "float_parsing", Message: notParsedFloat, Input: raw.Clone()}
	}
	*f = v
	return nil
}

// readSeconds reads a duration in seconds between 0 and most; a negative one
// counts as 0. A duration that Go cannot hold is cut.
func readSeconds(dec *jsontext.Decoder, d *time.Duration, most float64) error {
	var f float64
	if err := readFloat(dec, &f); err != nil {
		return err
	}
	if most > 0 && f > most {
		return &agl.FieldError{
			Pointer: dec.StackPointer(), Type: "less_than_equal",
			Message: fmt.Sprintf("Input should be less than or equal to %g", most), Input: strconv.AppendFloat(nil, f, 'g', -1, 64),
		}
	}
	*d = secondsDuration(f)
	return nil
}

func secondsDuration(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 0), math.MaxInt64/2/float64(time.Second)) * float64(time.Second))
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
	return &agl.FieldError{Pointer: dec.StackPointer(), Type: "literal_error", Message: literalMessage(allowed), Input: raw.Clone()}
}

// literalMessage words what an enumeration allows: 'a', 'b' or 'c'.
func literalMessage[S ~string](allowed []S) string {
	quoted := make([]string, len(allowed))
	for i, a := range allowed {
		quoted[i] = "'" + string(a) + "'"
	}
	last := len(quoted) - 1
	return "Input should be " + strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// readEnums reads a list of enumeration values; null is no list, [] an empty
// one.
func readEnums[S ~string](dec *jsontext.Decoder, list *[]S, allowed []S) error {
	if dec.PeekKind() == 'n' {
		*list = nil
		return dec.SkipValue()
	}
	*list = []S{}
	return readList(dec, func() error {
		var s S
		err := readEnum(dec, &s, allowed)
		*list = append(*list, s)
		return err
	})
}

// readStrings reads a list of strings.
func readStrings(dec *jsontext.Decoder, list *[]string) error {
	*list = []string{}
	return readList(dec, func() error {
		var s string
		err := readString(dec, &s)
		*list = append(*list, s)
		return err
	})
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

// readRawObject keeps the bytes of an object.
func readRawObject(dec *jsontext.Decoder, raw *jsontext.Value) error {
	if dec.PeekKind() != '{' {
		return reject(dec, "dict_type", "Input should be a valid dictionary")
	}
	return readRaw(dec, raw)
}

// readTwice reads one object as v and then its members once more with field,
// for an envelope that is a noun with another key or two.
func readTwice(dec *jsontext.Decoder, v unmarshaler, field func(dec *jsontext.Decoder, name string) error) error {
	if dec.PeekKind() != '{' {
		return readObject(dec, nil)
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	for _, read := range []func(dec *jsontext.Decoder) error{
		v.UnmarshalJSONFrom,
		func(dec *jsontext.Decoder) error {
			return readObject(dec, func(name string) error { return field(dec, name) })
		},
	} {
		again := jsontext.NewDecoder(bytes.NewReader(raw), agl.JSONOptions())
		if err := read(again); err != nil {
			return err
		}
	}
	return nil
}
