package adapter

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// maxDepth bounds the nesting of values in attributes: of dotted keys, and of literals in strings.
const maxDepth = 256

// attribute is one attribute with its raw value.
type attribute struct {
	key string
	raw jsontext.Value
}

// attributes are a span's attributes, parsed once.
type attributes []attribute

func parseAttributes(raw agl.Attributes) attributes {
	a := make(attributes, 0, 16)
	for key, value := range raw.All() {
		a = append(a, attribute{key, value})
	}
	return a
}

// get returns the raw value of key, the last one if it is repeated.
func (a attributes) get(key string) (jsontext.Value, bool) {
	for _, attr := range slices.Backward(a) {
		if attr.key == key {
			return attr.raw, true
		}
	}
	return nil, false
}

// str returns the value of key if it is a string.
func (a attributes) str(key string) (string, bool) {
	raw, ok := a.get(key)
	if !ok {
		return "", false
	}
	return stringValue(raw)
}

// firstString returns the value of the first key that has a string.
func (a attributes) firstString(keys ...string) (string, bool) {
	for _, key := range keys {
		if s, ok := a.str(key); ok {
			return s, true
		}
	}
	return "", false
}

// below returns the attributes whose keys begin with the prefix and a dot, with both removed from the keys.
func (a attributes) below(prefix string) attributes {
	var list attributes
	for _, attr := range a {
		if rest, ok := strings.CutPrefix(attr.key, prefix); ok && rest != "" && rest[0] == '.' {
			list = append(list, attribute{rest[1:], attr.raw})
		}
	}
	return list
}

// stringValue returns the text of a raw value that is a string.
func stringValue(raw jsontext.Value) (string, bool) {
	text, ok := textValue(raw)
	return string(text), ok
}

// textValue is stringValue without a copy where possible: the text may be a part of raw.
func textValue(raw jsontext.Value) ([]byte, bool) {
	if raw.Kind() != '"' {
		return nil, false
	}
	if last := len(raw) - 1; last > 0 && raw[0] == '"' && raw[last] == '"' && bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return raw[1:last:last], true
	}
	// The error reports only invalid UTF-8, which becomes U+FFFD.
	text, _ := jsontext.AppendUnquote(make([]byte, 0, len(raw)), raw)
	return text, true
}
