package openai

import "bytes"

// member is one member of a raw object, by positions in the object's bytes.
type member struct {
	name       []byte // between the quotes, escapes as they are
	value      []byte
	start      int // of the name's first quote
	valueStart int
	end        int // behind the value
}

func skipSpace(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r') {
		i++
	}
	return i
}

// shortString is the length up to which strings are looked through by hand.
const shortString = 16

// skipString returns the position behind the string that starts at i, or -1 if
// it does not end.
func skipString(raw []byte, i int) int {
	i++
	// Most strings are names and tokens, for which a search is not worth its call.
	for end := min(len(raw), i+shortString); i < end && raw[i] != '\\'; i++ {
		if raw[i] == '"' {
			return i + 1
		}
	}
	for {
		n := bytes.IndexByte(raw[i:], '"')
		if n < 0 {
			return -1
		}
		quote := i + n
		back := quote
		for back > i && raw[back-1] == '\\' {
			back--
		}
		i = quote + 1
		if (quote-back)%2 == 0 {
			return i
		}
	}
}

// skipValue returns the position behind the value that starts at i, or -1 if
// there is none. It checks brackets and quotes, not every token.
func skipValue(raw []byte, i int) int {
	if i >= len(raw) {
		return -1
	}
	switch raw[i] {
	case '"':
		return skipString(raw, i)
	case '{', '[':
		for depth := 0; i < len(raw); {
			switch raw[i] {
			case '"':
				if i = skipString(raw, i); i < 0 {
					return -1
				}
				continue
			case '{', '[':
				depth++
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
		if i == start {
			return -1
		}
		return i
	}
}

// walkMembers visits the members of the object that starts at i and returns the
// position behind it, or -1 if it is none or not complete. The visit gets the
// name between its quotes and the position of the value, and returns the
// position behind the value, so that one walk can go into nested values.
func walkMembers(raw []byte, i int, visit func(m member) int) int {
	if i >= len(raw) || raw[i] != '{' {
		return -1
	}
	i = skipSpace(raw, i+1)
	if i < len(raw) && raw[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(raw) || raw[i] != '"' {
			return -1
		}
		start := i
		if i = skipString(raw, i); i < 0 {
			return -1
		}
		name := raw[start+1 : i-1]
		i = skipSpace(raw, i)
		if i >= len(raw) || raw[i] != ':' {
			return -1
		}
		value := skipSpace(raw, i+1)
		if value >= len(raw) {
			return -1
		}
		if i = visit(member{name: name, start: start, valueStart: value}); i < 0 {
			return -1
		}
		i = skipSpace(raw, i)
		if i >= len(raw) {
			return -1
		}
		switch raw[i] {
		case ',':
			i = skipSpace(raw, i+1)
		case '}':
			return i + 1
		default:
			return -1
		}
	}
}

// walkElements is walkMembers for the elements of an array.
func walkElements(raw []byte, i int, visit func(start int) int) int {
	if i >= len(raw) || raw[i] != '[' {
		return -1
	}
	i = skipSpace(raw, i+1)
	if i < len(raw) && raw[i] == ']' {
		return i + 1
	}
	for {
		if i >= len(raw) {
			return -1
		}
		if i = visit(i); i < 0 {
			return -1
		}
		i = skipSpace(raw, i)
		if i >= len(raw) {
			return -1
		}
		switch raw[i] {
		case ',':
			i = skipSpace(raw, i+1)
		case ']':
			return i + 1
		default:
			return -1
		}
	}
}

// eachMember yields the members of the object that raw starts with, and
// reports whether the object was complete.
func eachMember(raw []byte, yield func(m member)) bool {
	return walkMembers(raw, skipSpace(raw, 0), func(m member) int {
		if m.end = skipValue(raw, m.valueStart); m.end >= 0 {
			m.value = raw[m.valueStart:m.end:m.end]
			yield(m)
		}
		return m.end
	}) >= 0
}

// eachElement yields the elements of the array that raw starts with, and
// reports whether the array was complete.
func eachElement(raw []byte, yield func(value []byte)) bool {
	return walkElements(raw, skipSpace(raw, 0), func(start int) int {
		end := skipValue(raw, start)
		if end >= 0 {
			yield(raw[start:end:end])
		}
		return end
	}) >= 0
}

// Members yields the members of a raw object in their order: the name as it is
// spelled between its quotes, and the value's bytes. It reports whether raw is
// a complete object; up to the fault, members have been yielded.
func Members(raw []byte, yield func(name, value []byte)) bool {
	return eachMember(raw, func(m member) { yield(m.name, m.value) })
}

// Elements yields the elements of a raw array and reports whether raw is a
// complete array.
func Elements(raw []byte, yield func(value []byte)) bool {
	return eachElement(raw, yield)
}

func isNull(value []byte) bool { return string(value) == "null" }
