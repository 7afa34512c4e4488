package agl

import "bytes"

// The scanner below walks JSON that is known to be valid (it was checked when
// it came in), several times faster than a decoder that checks it again. On
// anything else it stops early; it never panics.

func skipSpace(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index behind the string that starts at i.
func skipString(raw []byte, i int) int {
	for end := i + 1; end < len(raw); end++ {
		n := bytes.IndexByte(raw[end:], '"')
		if n < 0 {
			return len(raw)
		}
		end += n
		// The quote is part of the string after an odd number of backslashes.
		back := end
		for back > i+1 && raw[back-1] == '\\' {
			back--
		}
		if (end-back)%2 == 0 {
			return end + 1
		}
	}
	return len(raw)
}

// skipValue returns the index behind the value that starts at i.
func skipValue(raw []byte, i int) int {
	if i >= len(raw) {
		return len(raw)
	}
	switch raw[i] {
	case '"':
		return skipString(raw, i)
	case '{', '[':
		depth := 0
		for i < len(raw) {
			switch raw[i] {
			case '"':
				i = skipString(raw, i)
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
		return len(raw)
	default:
		for i < len(raw) {
			switch raw[i] {
			case ',', '}', ']', ' ', '\n', '\t', '\r':
				return i
			}
			i++
		}
		return i
	}
}

// objectMembers yields each member of a raw object: its name with the quotes,
// and its value.
func objectMembers(raw []byte, yield func(name, value []byte) bool) {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return
	}
	i++
	for {
		i = skipSpace(raw, i)
		if i >= len(raw) || raw[i] != '"' {
			return
		}
		nameEnd := skipString(raw, i)
		name := raw[i:nameEnd:nameEnd]
		i = skipSpace(raw, nameEnd)
		if i >= len(raw) || raw[i] != ':' {
			return
		}
		i = skipSpace(raw, i+1)
		end := skipValue(raw, i)
		if end <= i || !yield(name, raw[i:end:end]) {
			return
		}
		i = skipSpace(raw, end)
		if i >= len(raw) || raw[i] != ',' {
			return
		}
		i++
	}
}

// arrayElements yields each element of a raw array.
func arrayElements(raw []byte, yield func(value []byte) bool) {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '[' {
		return
	}
	i++
	for {
		i = skipSpace(raw, i)
		end := skipValue(raw, i)
		if end <= i || !yield(raw[i:end:end]) {
			return
		}
		i = skipSpace(raw, end)
		if i >= len(raw) || raw[i] != ',' {
			return
		}
		i++
	}
}
