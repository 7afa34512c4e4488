package rawjson

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Appender is implemented by a value that appends its own JSON form.
type Appender interface {
	AppendJSON(dst []byte) []byte
}

// Object writes a JSON object, member by member, in the order of the calls. It is the memory that it was given with the
// object so far at its end. The names that its methods take must need no escapes, except for [Object.AnyKey].
type Object []byte

// NewObject begins an object at the end of dst.
func NewObject(dst []byte) Object { return append(dst, '{') }

// Reopen returns an object that End has closed, for more members.
func Reopen(closed []byte) Object { return closed[:len(closed)-1] }

// End closes the object and returns the memory.
func (o *Object) End() []byte { return append(*o, '}') }

// Key appends a name. Its value is what the caller appends to *o next.
func (o *Object) Key(name string) {
	b := *o
	if b[len(b)-1] == '{' {
		b = append(b, '"')
	} else {
		b = append(b, ',', '"')
	}
	*o = append(append(b, name...), '"', ':')
}

// AnyKey is Key for a name that may need escapes.
func (o *Object) AnyKey(name string) {
	b := *o
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	*o = append(AppendString(b, name), ':')
}

// Member appends a member as it is spelled: the name between its quotes and the value.
func (o *Object) Member(name, value []byte) {
	b := *o
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	b = append(b, value...)
	*o = b
}

// Members appends the members of a raw object as they are spelled.
func (o *Object) Members(object []byte) {
	for name, value := range Members(object) {
		o.Member(name, value)
	}
}

// Raw appends a value as it is spelled; an empty one is null.
func (o *Object) Raw(name string, value []byte) {
	o.Key(name)
	*o = AppendRaw(*o, value)
}

// Dict appends an object as it is spelled; an empty one is {}.
func (o *Object) Dict(name string, value []byte) {
	if len(value) == 0 {
		value = []byte("{}")
	}
	o.Raw(name, value)
}

// Value appends the JSON form of a value.
func (o *Object) Value(name string, value Appender) {
	o.Key(name)
	*o = value.AppendJSON(*o)
}

// String appends a string.
func (o *Object) String(name, value string) {
	o.Key(name)
	*o = AppendString(*o, value)
}

// NonEmpty appends a string unless it is empty.
func (o *Object) NonEmpty(name, value string) {
	if value != "" {
		o.String(name, value)
	}
}

// NullString appends a string, or null unless it is valid.
func (o *Object) NullString(name, value string, valid bool) {
	if !valid {
		o.Raw(name, nil)
		return
	}
	o.String(name, value)
}

// Int appends an integer.
func (o *Object) Int(name string, value int64) {
	o.Key(name)
	*o = strconv.AppendInt(*o, value, 10)
}

// Float appends a number as [AppendFloat] does.
func (o *Object) Float(name string, value float64) {
	o.Key(name)
	*o = AppendFloat(*o, value)
}

// NullFloat appends a number, or null unless it is valid.
func (o *Object) NullFloat(name string, value float64, valid bool) {
	if !valid {
		o.Raw(name, nil)
		return
	}
	o.Float(name, value)
}

// Bool appends a boolean.
func (o *Object) Bool(name string, value bool) {
	o.Key(name)
	*o = strconv.AppendBool(*o, value)
}

// AppendRaw appends a value as it is spelled; an empty one is null.
func AppendRaw[V ~[]byte](dst []byte, value V) []byte {
	if len(value) == 0 {
		return append(dst, "null"...)
	}
	return append(dst, value...)
}

// AppendArray appends a list; one appends an element.
func AppendArray[T any](dst []byte, list []T, one func(dst []byte, element T) []byte) []byte {
	dst = append(dst, '[')
	for i, element := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = one(dst, element)
	}
	return append(dst, ']')
}

// AppendList appends a list of values whose AppendJSON has a pointer receiver.
func AppendList[T any, P interface {
	*T
	Appender
}](dst []byte, list []T,
) []byte {
	dst = append(dst, '[')
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = P(&list[i]).AppendJSON(dst)
	}
	return append(dst, ']')
}

// AppendString appends a JSON string, with U+FFFD for each invalid byte.
func AppendString[S ~string](dst []byte, s S) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			// The error reports what has become U+FFFD.
			dst, _ = jsontext.AppendQuote(dst, string(s))
			return dst
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// AppendInt appends an integer.
func AppendInt[I ~int | ~int64](dst []byte, i I) []byte { return strconv.AppendInt(dst, int64(i), 10) }

// AppendFloat appends f as Python's repr spells it, so that a float stays one for readers that tell 1 from 1.0. What JSON
// cannot spell (NaN and the infinities) is null.
func AppendFloat[F ~float64](dst []byte, value F) []byte {
	f := float64(value)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	abs := math.Abs(f)
	if abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if bytes.IndexByte(dst[start:], '.') >= 0 {
		return dst
	}
	return append(dst, '.', '0')
}

// AppendFloatText is AppendFloat with the strings "NaN", "Infinity" and "-Infinity" for what JSON cannot spell.
func AppendFloatText(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	default:
		return AppendFloat(dst, f)
	}
}
