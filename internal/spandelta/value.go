package spandelta

import "bytes"

// Value is the value of a member. It may begin with that of a member of an earlier document, and then its size is that of
// what it adds. It is immutable.
type Value struct {
	Base   *Value // nil if Rest is all of it
	Shared int    // how many bytes of Base's it begins with
	Rest   []byte // the bytes after those

	first     byte // of the value
	plainList bool // a list without lists, objects and strings in it, such as one of numbers
}

// newValue returns the value that text spells.
func newValue(text []byte) *Value {
	return &Value{Rest: text, first: text[0], plainList: text[0] == '[' && isPlain(text[1:])}
}

// isPlain reports whether a part of a list has neither lists, objects nor strings.
func isPlain(text []byte) bool {
	for _, c := range []byte(`"[{`) {
		if bytes.IndexByte(text, c) >= 0 {
			return false
		}
	}
	return true
}

// extended returns a value that begins with bytes of this one, at least one, and goes on with rest.
func (v *Value) extended(shared int, rest []byte) *Value {
	return &Value{Base: v, Shared: shared, Rest: rest, first: v.first, plainList: v.plainList}
}

// Size returns how many bytes the value has.
func (v *Value) Size() int { return v.Shared + len(v.Rest) }

// AppendFrom appends the value without its first bytes.
func (v *Value) AppendFrom(dst []byte, from int) []byte { return v.appendRange(dst, from, v.Size()) }

func (v *Value) appendRange(dst []byte, from, to int) []byte {
	if from < v.Shared {
		dst = v.Base.appendRange(dst, from, min(to, v.Shared))
		from = v.Shared
	}
	if from < to {
		dst = append(dst, v.Rest[from-v.Shared:to-v.Shared]...)
	}
	return dst
}

// at returns a byte of the value.
func (v *Value) at(i int) byte {
	for i < v.Shared {
		v = v.Base
	}
	return v.Rest[i-v.Shared]
}

// escapes reports whether the first n bytes of a string end with a backslash that the next byte belongs to.
func (v *Value) escapes(n int) bool {
	backslashes := 0
	for v.at(n-1-backslashes) == '\\' { // the string begins with a quote
		backslashes++
	}
	return backslashes%2 == 1
}
