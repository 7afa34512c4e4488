package record

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// The functions below write JSON into JSON strings. Their input is valid JSON, so only
// quotes and backslashes need an escape, and no byte becomes more than two. The memory
// for that is allocated once, because the cost of records depends on these functions.
// They write to out from n on and return where they ended.

// appendQuoted appends a JSON string whose text is a JSON value.
func appendQuoted(dst, value []byte) []byte {
	out, n := room(dst, value)
	for i := 0; i < len(value); {
		switch c := value[i]; c {
		case '"':
			end := rawjson.SkipString(value, i)
			n = writeString(out, n, value[i+1:end-1], writeEscapes)
			i = end
		case '\n':
			n = writePair(out, n, '\\', 'n')
			i++
		case '\r':
			n = writePair(out, n, '\\', 'r')
			i++
		case '\t':
			n = writePair(out, n, '\\', 't')
			i++
		default:
			out[n] = c
			n++
			i++
		}
	}
	out[n] = '"'
	return out[:n+1]
}

// appendPython appends a JSON string whose text is the Python literal of a JSON value.
// The readers of these spans parse it with ast.literal_eval, which knows True, False and
// None, but not true, false and null.
func appendPython(dst, value []byte) []byte {
	out, n := room(dst, value)
	for i := 0; i < len(value); {
		switch c := value[i]; c {
		case '"':
			end := rawjson.SkipString(value, i)
			n = writeString(out, n, value[i+1:end-1], writePythonEscapes)
			i = end
		case 't':
			n += copy(out[n:], "True")
			i += len("true")
		case 'f':
			n += copy(out[n:], "False")
			i += len("false")
		case 'n':
			n += copy(out[n:], "None")
			i += len("null")
		case ',', ':':
			n = writePair(out, n, c, ' ')
			i++
		case ' ', '\t', '\r', '\n':
			i++
		default:
			out[n] = c
			n++
			i++
		}
	}
	out[n] = '"'
	return out[:n+1]
}

// room returns dst extended to its capacity, which is enough for a value as a string, and
// the position after the first quote.
func room(dst, value []byte) (out []byte, n int) {
	n = len(dst)
	dst = slices.Grow(dst, 2*len(value)+2)
	out = dst[:cap(dst)]
	out[n] = '"'
	return out, n + 1
}

func writePair(out []byte, n int, a, b byte) int {
	out[n], out[n+1] = a, b
	return n + 2
}

// shortString is the length up to which a loop is faster than a search.
const shortString = 16

// writeString writes the inside of a JSON string as a string within a string. escapes
// writes the part from the first backslash on.
func writeString(out []byte, n int, inner []byte, escapes func(out []byte, n int, inner []byte) int) int {
	n = writePair(out, n, '\\', '"')
	if len(inner) < shortString {
		i := 0
		for ; i < len(inner) && inner[i] != '\\'; i++ {
			out[n+i] = inner[i]
		}
		n, inner = n+i, inner[i:]
	}
	if len(inner) > 0 {
		n = escapes(out, n, inner)
	}
	return writePair(out, n, '\\', '"')
}

// writeEscapes copies the inside of a JSON string with its escapes escaped.
func writeEscapes(out []byte, n int, inner []byte) int {
	for {
		i := bytes.IndexByte(inner, '\\')
		if i < 0 {
			return n + copy(out[n:], inner)
		}
		n += copy(out[n:], inner[:i])
		n = writeEscape(out, n, inner[i+1])
		inner = inner[i+2:]
	}
}

// writeEscape escapes the escape of c; the digits of \u stay as they are.
func writeEscape(out []byte, n int, c byte) int {
	n = writePair(out, n, '\\', '\\')
	if c == '"' || c == '\\' {
		return writePair(out, n, '\\', c)
	}
	out[n] = c
	return n + 1
}

// writePythonEscapes is writeEscapes for Python, which reads escapes in the same way with
// two exceptions: it does not know \/, and it does not join surrogates.
func writePythonEscapes(out []byte, n int, inner []byte) int {
	for {
		i := bytes.IndexByte(inner, '\\')
		if i < 0 {
			return n + copy(out[n:], inner)
		}
		n += copy(out[n:], inner[:i])
		inner = inner[i:]
		switch inner[1] {
		case '/':
			out[n] = '/'
			n++
		case 'u':
			if r := openai.SurrogatePair(inner); r != utf8.RuneError {
				n += utf8.EncodeRune(out[n:], r)
				inner = inner[len(`\ud83d\ude00`):]
				continue
			}
			n = writeEscape(out, n, 'u')
		default:
			n = writeEscape(out, n, inner[1])
		}
		inner = inner[2:]
	}
}
