package proxy

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions below write JSON into JSON strings. What they are given has been
// found valid, so only quotes and backslashes need an escape, and text between
// them is copied as it is, which for replies of tens of kilobytes is what the
// cost of a record hangs on.

// appendQuoted appends a JSON string whose text is a JSON value.
func appendQuoted(dst, value []byte) []byte {
	dst = append(dst, '"')
	run := 0 // where what is copied as it is begins
	for i := 0; i < len(value); {
		c := value[i]
		if c > '"' || c == ' ' {
			i++
			continue
		}
		dst = append(dst, value[run:i]...)
		i++
		switch c {
		case '"':
			inner, rest := cutString(value[i-1:])
			dst = append(dst, `\"`...)
			dst = appendEscaped(dst, inner)
			dst = append(dst, `\"`...)
			i = len(value) - len(rest)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		}
		run = i
	}
	return append(append(dst, value[run:]...), '"')
}

// shortString is the length up to which strings are looked through by hand.
const shortString = 16

// cutString splits a value that begins with a string behind it, and returns the
// string without its quotes.
func cutString(value []byte) (inner, rest []byte) {
	i := 1
	// Short strings are the rule, and a search is not worth its call for them.
	for ; i < shortString && value[i] != '\\'; i++ {
		if value[i] == '"' {
			return value[1:i], value[i+1:]
		}
	}
	for {
		end := i + bytes.IndexByte(value[i:], '"')
		back := end
		for value[back-1] == '\\' {
			back--
		}
		if (end-back)%2 == 0 {
			return value[1:end], value[end+1:]
		}
		i = end + 1
	}
}

// appendEscaped copies the inside of a JSON string with its escapes escaped.
func appendEscaped(dst, inner []byte) []byte {
	for {
		i := bytes.IndexByte(inner, '\\')
		if i < 0 {
			return append(dst, inner...)
		}
		dst = append(dst, inner[:i]...)
		dst = append(dst, `\\`...)
		if c := inner[i+1]; c == '"' || c == '\\' {
			dst = append(dst, '\\', c)
		} else {
			dst = append(dst, c)
		}
		inner = inner[i+2:]
	}
}

// appendPython appends a JSON string whose text is the Python literal of a JSON
// value, which is what the readers of these spans parse: ast.literal_eval takes
// True, False and None, not true, false and null.
func appendPython(dst, value []byte) []byte {
	dst = append(dst, '"')
	run := 0 // where what is copied as it is begins
	for i := 0; i < len(value); {
		switch value[i] {
		case '"':
			dst = append(dst, value[run:i]...)
			inner, rest := cutString(value[i:])
			dst = append(dst, `\"`...)
			dst = appendPythonString(dst, inner)
			dst = append(dst, `\"`...)
			i = len(value) - len(rest)
			run = i
		case 't':
			dst = append(append(dst, value[run:i]...), "True"...)
			i += len("true")
			run = i
		case 'f':
			dst = append(append(dst, value[run:i]...), "False"...)
			i += len("false")
			run = i
		case 'n':
			dst = append(append(dst, value[run:i]...), "None"...)
			i += len("null")
			run = i
		case ',', ':':
			i++
			dst = append(append(dst, value[run:i]...), ' ')
			run = i
		case ' ', '\t', '\r', '\n':
			dst = append(dst, value[run:i]...)
			i++
			run = i
		default:
			i++
		}
	}
	return append(append(dst, value[run:]...), '"')
}

// appendPythonString copies the inside of a JSON string. Python reads its
// escapes alike but for two: it knows no \/, and it does not join surrogates.
func appendPythonString(dst, inner []byte) []byte {
	for {
		i := bytes.IndexByte(inner, '\\')
		if i < 0 {
			return append(dst, inner...)
		}
		dst = append(dst, inner[:i]...)
		inner = inner[i:]
		if inner[1] == '/' {
			dst = append(dst, '/')
			inner = inner[2:]
		} else if r := surrogates(inner); r >= 0 {
			dst = utf8.AppendRune(dst, r)
			inner = inner[len(`\ud83d\ude00`):]
		} else {
			dst = appendEscaped(dst, inner[:2])
			inner = inner[2:]
		}
	}
}

// surrogates returns the rune of a pair of escaped surrogates, or -1.
func surrogates(s []byte) rune {
	if len(s) < len(`\ud83d\ude00`) || s[1] != 'u' || s[6] != '\\' || s[7] != 'u' {
		return -1
	}
	high, err := strconv.ParseUint(string(s[2:6]), 16, 16)
	low, err2 := strconv.ParseUint(string(s[8:12]), 16, 16)
	if err != nil || err2 != nil {
		return -1
	}
	if r := utf16.DecodeRune(rune(high), rune(low)); r != utf8.RuneError {
		return r
	}
	return -1
}
