package rawjson

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Reader reads typed values out of a decoder. A value of another type is refused with the kinds and the wording of pydantic,
// which the clients of the reference know. Numbers may be spelled as strings, as they may there.
type Reader struct {
	*jsontext.Decoder

	// Reject makes the error for a value that is refused: where it stands in the document, the kind of the error, what is
	// allowed, and the value, which is nil where one is missing.
	Reject func(at jsontext.Pointer, kind, message string, input jsontext.Value) error
}

// The wordings of more than one error.
const (
	notAnInt   = "Input should be a valid integer"
	notAFloat  = "Input should be a valid number"
	notADict   = "Input should be a valid dictionary"
	notAModel  = notADict + " or object to extract fields from"
	notInRange = "Unable to parse input string as an integer, exceeded maximum size"

	// NotFinite refuses NaN and the infinities, with kind finite_number.
	NotFinite = "Input should be a finite number"
)

// Refuse reads the next value and returns the error that rejects it.
func (r Reader) Refuse(kind, message string) error {
	raw, err := r.ReadValue()
	if err != nil {
		return err
	}
	return r.refuse(kind, message, raw)
}

// refuse is Refuse for a value that has been read.
func (r Reader) refuse(kind, message string, raw jsontext.Value) error {
	return r.Reject(r.StackPointer(), kind, message, raw.Clone())
}

// Missing rejects the object that has just been read, which lacks a member.
func (r Reader) Missing(name string) error {
	return r.Reject(r.StackPointer().AppendToken(name), "missing", "Field required", nil)
}

// Object reads an object that has fields. It calls member for each member with its name, which is valid until member reads
// or skips the value. An object that lacks one of required (at most 64 names) is rejected.
func (r Reader) Object(member func(name []byte) error, required ...string) error {
	if r.PeekKind() != '{' {
		return r.Refuse("model_attributes_type", notAModel)
	}
	return r.members(member, required)
}

// Dict is Object for an object whose keys are free.
func (r Reader) Dict(member func(name []byte) error) error {
	if r.PeekKind() != '{' {
		return r.Refuse("dict_type", notADict)
	}
	return r.members(member, nil)
}

func (r Reader) members(member func(name []byte) error, required []string) error {
	if _, err := r.ReadToken(); err != nil {
		return err
	}
	var given uint64 // a bit for each of required
	for r.PeekKind() != '}' {
		name, err := r.ReadValue()
		if err != nil {
			return err
		}
		if bytes.IndexByte(name, '\\') < 0 {
			name = name[1 : len(name)-1]
		} else {
			// The error reports what has become U+FFFD.
			name, _ = jsontext.AppendUnquote(nil, name)
		}
		for i, key := range required {
			if string(name) == key {
				given |= 1 << i
				break
			}
		}
		if err := member(name); err != nil {
			return err
		}
	}
	if _, err := r.ReadToken(); err != nil {
		return err
	}
	for i, key := range required {
		if given&(1<<i) == 0 {
			return r.Missing(key)
		}
	}
	return nil
}

// List calls element before each element of an array; element reads it.
func (r Reader) List(element func() error) error {
	if r.PeekKind() != '[' {
		return r.Refuse("list_type", "Input should be a valid list")
	}
	if _, err := r.ReadToken(); err != nil {
		return err
	}
	for r.PeekKind() != ']' {
		if err := element(); err != nil {
			return err
		}
	}
	_, err := r.ReadToken()
	return err
}

// Null reads a null and reports true if the next value is one. Else it reads nothing.
func (r Reader) Null() (bool, error) {
	if r.PeekKind() != 'n' {
		return false, nil
	}
	return true, r.SkipValue()
}

// String reads a string.
func (r Reader) String(s *string) error {
	if r.PeekKind() != '"' {
		return r.Refuse("string_type", "Input should be a valid string")
	}
	token, err := r.ReadToken()
	if err != nil {
		return err
	}
	*s = token.String()
	return nil
}

// Strings reads a list of strings. An empty list is not nil.
func (r Reader) Strings(list *[]string) error {
	*list = []string{}
	return r.List(func() error {
		var s string
		err := r.String(&s)
		*list = append(*list, s)
		return err
	})
}

// Bool reads a boolean.
func (r Reader) Bool(b *bool) error {
	if k := r.PeekKind(); k != 't' && k != 'f' {
		return r.Refuse("bool_type", "Input should be a valid boolean")
	}
	token, err := r.ReadToken()
	if err != nil {
		return err
	}
	*b = token.Bool()
	return nil
}

// Int reads an integer: one, a float without a fraction, or a string that spells an integer.
func Int[I ~int | ~int64](r Reader, i *I) error {
	kind := r.PeekKind()
	if kind != '0' && kind != '"' {
		return r.Refuse("int_type", notAnInt)
	}
	raw, err := r.ReadValue()
	if err != nil {
		return err
	}
	if kind == '"' {
		// As in the reference, spaces around it and a fraction of zero may be there.
		spelled := strings.TrimSuffix(strings.TrimSpace(string(raw[1:len(raw)-1])), ".0")
		v, err := strconv.ParseInt(spelled, 10, 64)
		if err != nil {
			return r.refuse("int_parsing", notAnInt+", unable to parse string as an integer", raw)
		}
		*i = I(v)
		return nil
	}
	if v, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		*i = I(v)
		return nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil || math.Abs(f) >= 1<<62:
		return r.refuse("int_parsing_size", notInRange, raw)
	case f != math.Trunc(f):
		return r.refuse("int_from_float", notAnInt+", got a number with a fractional part", raw)
	}
	*i = I(f)
	return nil
}

// IntAtLeast is Int for an integer that must not be less than least.
func IntAtLeast[I ~int | ~int64](r Reader, i *I, least I) error {
	if err := Int(r, i); err != nil || *i >= least {
		return err
	}
	return r.Reject(r.StackPointer(), "greater_than_equal",
		fmt.Sprintf("Input should be greater than or equal to %d", least), strconv.AppendInt(nil, int64(*i), 10))
}

// Float reads a finite number, or a string that spells one.
func Float[F ~float64](r Reader, f *F) error {
	kind := r.PeekKind()
	if kind != '0' && kind != '"' {
		return r.Refuse("float_type", notAFloat)
	}
	raw, err := r.ReadValue()
	if err != nil {
		return err
	}
	text := raw
	if kind == '"' {
		text = bytes.TrimSpace(raw[1 : len(raw)-1])
	}
	v, err := strconv.ParseFloat(string(text), 64)
	switch {
	case math.IsInf(v, 0) || math.IsNaN(v):
		return r.refuse("finite_number", NotFinite, raw)
	case err != nil:
		return r.refuse("float_parsing", notAFloat+", unable to parse string as a number", raw)
	}
	*f = F(v)
	return nil
}

// Enum reads a string that must be one of allowed.
func Enum[S ~string](r Reader, s *S, allowed []S) error {
	raw, err := r.ReadValue()
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
	return r.refuse("literal_error", "Input should be "+Quoted(allowed), raw)
}

// Enums reads a list of strings that must be among allowed. An empty list is not nil.
func Enums[S ~string](r Reader, list *[]S, allowed []S) error {
	*list = []S{}
	return r.List(func() error {
		var s S
		err := Enum(r, &s, allowed)
		*list = append(*list, s)
		return err
	})
}

// Quoted words a choice: 'a', 'b' or 'c'.
func Quoted[S ~string](items []S) string {
	var b strings.Builder
	for i, item := range items {
		switch {
		case i == 0:
		case i == len(items)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "'%s'", item)
	}
	return b.String()
}

// Raw keeps a copy of the next value's bytes.
func (r Reader) Raw(raw *jsontext.Value) error {
	v, err := r.ReadValue()
	if err != nil {
		return err
	}
	*raw = v.Clone()
	return nil
}

// RawDict is Raw for a value that must be an object.
func (r Reader) RawDict(raw *jsontext.Value) error {
	if r.PeekKind() != '{' {
		return r.Refuse("dict_type", notADict)
	}
	return r.Raw(raw)
}

// RawDictOrNull is RawDict with nil for null.
func (r Reader) RawDictOrNull(raw *jsontext.Value) error {
	*raw = nil
	if null, err := r.Null(); null || err != nil {
		return err
	}
	return r.RawDict(raw)
}
