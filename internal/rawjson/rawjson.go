// Package rawjson reads and writes JSON that mostly passes through: documents that are kept as the bytes that came in, of
// which only a few members are looked at, replaced or added.
//
//   - [Members], [Elements], [EachMember], [WalkMembers] and their kin scan a
//     document without decoding it. They match brackets and quotes only, so they
//     suit documents that were checked when they came in; on anything else they
//     stop early and never panic.
//   - [Get], [Set] and [Remove] edit one member of a raw object and leave the
//     bytes of the others alone.
//   - [Object] and the Append functions write a document.
//   - [Reader] reads typed values out of a decoder and says exactly what is wrong
//     with a value of another type.
//
// The package knows JSON. It must not know what a document means.
package rawjson

import (
	"bytes"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Options returns the options for decoding what others wrote: names may repeat
// and text may be invalid UTF-8, as both may in the clients that send it.
func Options() json.Options { return options }

var options = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true))

// Unmarshal decodes one document into v with [Options]. A document that is not
// JSON is a *jsontext.SyntacticError in the chain of the error.
func Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v, options) }

// NewDecoder returns a decoder of data with [Options]. The values that it reads share the memory of data.
func NewDecoder(data []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(data), options)
}

// Number reads a finite number, or true or false as 1 or 0. ok is false for any other value.
func Number(raw jsontext.Value) (number float64, ok bool) {
	switch raw.Kind() {
	case 't':
		return 1, true
	case 'f':
		return 0, true
	case '0':
		err := Unmarshal(raw, &number)
		return number, err == nil
	}
	return 0, false
}

// Null returns the document null.
func Null() jsontext.Value { return jsontext.Value("null") }

// IsNull reports whether a raw value is null.
func IsNull(value []byte) bool { return string(value) == "null" }

// Unquote returns the text of a raw string, with U+FFFD for each invalid byte, and "" for a value of another type.
func Unquote(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return UnquoteName(raw[1 : len(raw)-1])
}

// Text returns a raw string unquoted, and a value of another type as it is spelled.
func Text(raw jsontext.Value) string {
	if raw.Kind() == '"' {
		return Unquote(raw)
	}
	return string(raw)
}

// Readable returns a value for people: the letters that programs such as Python's json write as \uXXXX are decoded, and the value is formatted on
// one line. A value without \u, or that is not JSON, is returned as it is spelled.
func Readable(raw jsontext.Value) string {
	if !bytes.Contains(raw, []byte(`\u`)) {
		return string(raw)
	}
	shown := raw.Clone()
	if shown.Format(jsontext.PreserveRawStrings(false), jsontext.SpaceAfterColon(true), jsontext.SpaceAfterComma(true)) != nil {
		return string(raw)
	}
	return string(shown)
}

// UnquoteName is [Unquote] for what stands between the quotes.
func UnquoteName(name []byte) string {
	if bytes.IndexByte(name, '\\') < 0 && utf8.Valid(name) {
		return string(name)
	}
	quoted := make([]byte, 0, len(name)+2)
	quoted = append(append(append(quoted, '"'), name...), '"')
	// The error reports what has become U+FFFD.
	text, _ := jsontext.AppendUnquote(nil, quoted)
	return string(text)
}

// NameIs reports whether name, the text between the quotes of a member's name, spells key.
func NameIs(name []byte, key string) bool {
	if bytes.IndexByte(name, '\\') < 0 {
		return string(name) == key
	}
	return UnquoteName(name) == key
}
