package rawjson

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math/bits"
)

// Member is one member of a raw object. Name and Value share its memory.
type Member struct {
	Name  []byte // the text between the quotes, escapes as they are spelled
	Value []byte

	Start      int // offset of the name's opening quote
	ValueStart int // offset of the value
	End        int // offset after the value
}

// SkipSpace returns the offset of the first byte at or after i that is not white space.
func SkipSpace(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r') {
		i++
	}
	return i
}

// plainBytes is the number of bytes without a quote after which a search takes over. Most strings are shorter, and in a
// document that is a string quotes are close to each other: the call of the search would cost more than it saves.
const plainBytes = 64

// SkipString returns the offset after the string that starts at i, or -1 if the string does not end. It reads eight bytes
// at once.
func SkipString(raw []byte, i int) int {
	const ones, low, high = 0x0101010101010101, 0x7f7f7f7f7f7f7f7f, 0x8080808080808080
	i++
	start := i
	for plain := 0; len(raw)-i >= 8; {
		w := binary.LittleEndian.Uint64(raw[i:]) ^ '"'*ones
		quotes := ^((w&low + low) | w) & high // the highest bit of each byte that is one
		if quotes != 0 {
			for ; quotes != 0; quotes &= quotes - 1 {
				if quote := i + bits.TrailingZeros64(quotes)/8; !isEscaped(raw, start, quote) {
					return quote + 1
				}
			}
			i, plain = i+8, 0
			continue
		}
		i += 8
		if plain += 8; plain >= plainBytes {
			n := bytes.IndexByte(raw[i:], '"')
			if n < 0 {
				return -1
			}
			i, plain = i+n, 0
		}
	}
	for ; i < len(raw); i++ {
		if raw[i] == '"' && !isEscaped(raw, start, i) {
			return i + 1
		}
	}
	return -1
}

// isEscaped reports whether an odd number of backslashes precedes a quote in the string whose inside begins at start.
func isEscaped(raw []byte, start, quote int) bool {
	back := quote
	for back > start && raw[back-1] == '\\' {
		back--
	}
	return (quote-back)%2 == 1
}

// More reports whether a document has more than most objects, lists and nulls. Decoded, an empty one takes some hundred
// bytes, so a document from others is asked before it is decoded.
func More(raw []byte, most int) bool {
	if bytes.Count(raw, []byte{'{'})+bytes.Count(raw, []byte{'['})+bytes.Count(raw, []byte{'n'}) <= most { // fast, but counts in strings, too
		return false
	}
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			if i = SkipString(raw, i) - 1; i < 0 {
				return false // the decoder says what is wrong
			}
		case '{', '[', 'n':
			if most--; most < 0 {
				return true
			}
		}
	}
	return false
}

// SkipValue returns the offset after the value that starts at i, or -1 if there is no complete value. It matches brackets
// and quotes and does not check the tokens between them.
func SkipValue(raw []byte, i int) int {
	if i >= len(raw) {
		return -1
	}
	switch raw[i] {
	case '"':
		return SkipString(raw, i)
	case '{', '[':
		for depth := 0; i < len(raw); {
			switch raw[i] {
			case '"':
				if i = SkipString(raw, i); i < 0 {
					return -1
				}
				continue
			case '{', '[':
				depth++
				if end := numbersEnd(raw, i); end > 0 {
					i = end
					continue
				}
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return -1
	default:
		start := i
		for i < len(raw) {
			switch raw[i] {
			case ',', '}', ']', ' ', '\n', '\t', '\r':
				if i == start {
					return -1
				}
				return i
			}
			i++
		}
		return i
	}
}

// numbersEnd returns the offset of the bracket that ends the list of numbers at i, or -1 if there is no such list. Token ids
// are most of what is read, so this looks for what ends the list and for what it must not contain.
func numbersEnd(raw []byte, i int) int {
	const short = 16 // bytes, in which a search costs more than it saves
	if i+short >= len(raw) || raw[i] != '[' || raw[i+1] < '-' || raw[i+1] > '9' {
		return -1
	}
	n := bytes.IndexByte(raw[i+1:], ']')
	if n < short {
		return -1
	}
	for _, c := range []byte(`"[{}`) {
		if bytes.IndexByte(raw[i+1:i+1+n], c) >= 0 {
			return -1
		}
	}
	return i + 1 + n
}

// WalkMembers calls visit for each member of the object that starts at i and returns the offset after the object, or -1 if
// there is no complete object. The member that visit gets has no Value and no End yet: visit returns the offset after the
// value, so that one walk can enter nested values. A negative offset ends the walk.
func WalkMembers(raw []byte, i int, visit func(m Member) int) int {
	return walk(raw, i, '{', '}', func(start int) int {
		if raw[start] != '"' {
			return -1
		}
		end := SkipString(raw, start)
		if end < 0 {
			return -1
		}
		colon := SkipSpace(raw, end)
		if colon >= len(raw) || raw[colon] != ':' {
			return -1
		}
		value := SkipSpace(raw, colon+1)
		if value >= len(raw) {
			return -1
		}
		return visit(Member{Name: raw[start+1 : end-1 : end-1], Start: start, ValueStart: value})
	})
}

// WalkElements is WalkMembers for the elements of the array that starts at i.
func WalkElements(raw []byte, i int, visit func(start int) int) int {
	return walk(raw, i, '[', ']', visit)
}

// walk calls visit with the offset of each item between two brackets. visit returns the offset after the item.
func walk(raw []byte, i int, left, right byte, visit func(start int) int) int {
	if i >= len(raw) || raw[i] != left {
		return -1
	}
	i = SkipSpace(raw, i+1)
	if i < len(raw) && raw[i] == right {
		return i + 1
	}
	for i < len(raw) {
		if i = visit(i); i < 0 {
			return -1
		}
		i = SkipSpace(raw, i)
		switch {
		case i >= len(raw):
			return -1
		case raw[i] == right:
			return i + 1
		case raw[i] != ',':
			return -1
		}
		i = SkipSpace(raw, i+1)
	}
	return -1
}

// EachMember calls visit for each member of the object that raw begins with and
// reports whether the object is complete. Members before a fault are visited.
func EachMember(raw []byte, visit func(m Member)) (complete bool) {
	return WalkMembers(raw, SkipSpace(raw, 0), func(m Member) int {
		if m.End = SkipValue(raw, m.ValueStart); m.End >= 0 {
			m.Value = raw[m.ValueStart:m.End:m.End]
			visit(m)
		}
		return m.End
	}) >= 0
}

// EachElement calls visit for each element of the array that raw begins with and reports whether the array is complete.
// Elements before a fault are visited.
func EachElement(raw []byte, visit func(value []byte)) (complete bool) {
	return elements(raw, func(value []byte) bool {
		visit(value)
		return true
	})
}

// Members yields the name and the value of each member of a raw object, up to the first fault. The name is the text between
// the quotes, escapes as they are spelled; [UnquoteName] and [NameIs] resolve them.
func Members(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) { members(raw, yield) }
}

func members(raw []byte, yield func(name, value []byte) bool) {
	WalkMembers(raw, SkipSpace(raw, 0), func(m Member) int {
		end := SkipValue(raw, m.ValueStart)
		if end < 0 || !yield(m.Name, raw[m.ValueStart:end:end]) {
			return -1
		}
		return end
	})
}

// Elements yields each element of a raw array, up to the first fault.
func Elements(raw []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { elements(raw, yield) }
}

func elements(raw []byte, yield func(value []byte) bool) (complete bool) {
	return WalkElements(raw, SkipSpace(raw, 0), func(start int) int {
		end := SkipValue(raw, start)
		if end < 0 || !yield(raw[start:end:end]) {
			return -1
		}
		return end
	}) >= 0
}

// IsScalarList reports whether list, a valid array, holds only strings, only numbers or only booleans. It is true for an empty one.
func IsScalarList(list []byte) bool {
	if isNumberList(list) {
		return true
	}
	first := byte(0)
	for element := range Elements(list) {
		kind := scalarKind(element[0])
		if first == 0 {
			first = kind
		}
		if kind == 0 || kind != first {
			return false
		}
	}
	return true
}

// isNumberList searches for the bytes that numbers cannot contain, which is faster than parsing: most lists are token ids.
func isNumberList(list []byte) bool {
	for _, c := range []byte(`"[{tfn`) {
		if bytes.IndexByte(list[1:], c) >= 0 {
			return false
		}
	}
	return true
}

// scalarKind returns the type of a value by its first byte, 0 for null, an object or an array.
func scalarKind(c byte) byte {
	switch c {
	case '"':
		return '"'
	case 't', 'f':
		return 't'
	case '{', '[', 'n':
		return 0
	default:
		return '0'
	}
}

// CommonPrefix returns the length of the longest common prefix. Long ones, such as those of lists of token ids, are compared in
// blocks.
func CommonPrefix(a, b []byte) int {
	const block = 1 << 10
	n, size := 0, min(len(a), len(b))
	for n+block <= size && bytes.Equal(a[n:n+block], b[n:n+block]) {
		n += block
	}
	for n < size && a[n] == b[n] {
		n++
	}
	return n
}
