package proxy

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// appendPython appends a JSON value as the Python literal of the same value,
// which is what the readers of these spans parse: ast.literal_eval takes True,
// False and None, not true, false and null. The value must be valid JSON.
func appendPython(dst, value []byte) []byte {
	for i := 0; i < len(value); {
		switch c := value[i]; c {
		case '"':
			end := i + 1
			escaped := false
			for value[end] != '"' {
				if value[end] == '\\' {
					escaped = true
					end++
				}
				end++
			}
			end++
			if escaped {
				dst = appendPythonString(dst, value[i:end])
			} else {
				dst = append(dst, value[i:end]...)
			}
			i = end
		case 't':
			dst = append(dst, "True"...)
			i += len("true")
		case 'f':
			dst = append(dst, "False"...)
			i += len("false")
		case 'n':
			dst = append(dst, "None"...)
			i += len("null")
		case ' ', '\t', '\r', '\n':
			i++
		case ',', ':':
			dst = append(dst, c, ' ')
			i++
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// appendPythonString copies a JSON string. Python reads its escapes alike but
// for two: it knows no \/, and it does not join surrogates.
func appendPythonString(dst, s []byte) []byte {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			dst = append(dst, s[i])
			continue
		}
		if s[i+1] == '/' {
			dst = append(dst, '/')
			i++
			continue
		}
		if r := surrogates(s[i:]); r >= 0 {
			dst = utf8.AppendRune(dst, r)
			i += len(`\ud83d\ude00`) - 1
			continue
		}
		dst = append(dst, s[i], s[i+1])
		i++
	}
	return dst
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
