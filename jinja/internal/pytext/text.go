// Package pytext has what Python's str does and Go's strings does not, as pure functions: case, white space and digits
// as Python defines them, repr and JSON literals, the formatting of numbers, and dates. It knows nothing of templates
// and has no limits; callers count the work.
package pytext

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsSpace is str.isspace for one character.
func IsSpace(c rune) bool { return c >= 0x1c && c <= 0x1f || unicode.IsSpace(c) }

// IsDigit reports whether c is an ASCII digit.
func IsDigit(c byte) bool { return c >= '0' && c <= '9' }

// IdentifierLen returns the length of the identifier at the start of s.
func IdentifierLen(s string) int {
	for i, c := range s {
		inside := i > 0 && (unicode.IsDigit(c) || unicode.IsMark(c))
		if c != '_' && !unicode.IsLetter(c) && !inside {
			return i
		}
	}
	return len(s)
}

// Predicates are the methods of str that test every character, as functions of one character.
var Predicates = map[string]func(c rune) bool{
	"isspace":     IsSpace,
	"isalpha":     unicode.IsLetter,
	"isdecimal":   unicode.IsDigit,
	"isdigit":     isDigit,
	"isnumeric":   unicode.IsNumber,
	"isalnum":     func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) },
	"isascii":     func(c rune) bool { return c < utf8.RuneSelf },
	"isprintable": unicode.IsPrint,
}

// isDigit includes superscript, subscript and circled digits.
func isDigit(c rune) bool {
	return unicode.IsDigit(c) || strings.ContainsRune("¹²³⁰", c) || c >= '⁴' && c <= '⁹' || c >= '₀' && c <= '₉' || c >= '①' && c <= '⑨'
}

// IsAll applies one of the [Predicates] to a string.
func IsAll(method, s string) bool {
	is := Predicates[method]
	if s == "" {
		return method == "isascii" || method == "isprintable"
	}
	return strings.IndexFunc(s, func(c rune) bool { return !is(c) }) < 0
}

// SplitSpace splits at runs of white space, at most limit times unless limit is negative.
func SplitSpace(s string, limit int, fromRight bool) []string {
	if limit < 0 {
		return strings.FieldsFunc(s, IsSpace)
	}
	trim, index := strings.TrimLeftFunc, strings.IndexFunc
	if fromRight {
		trim, index = strings.TrimRightFunc, strings.LastIndexFunc
	}
	var parts []string
	rest := trim(s, IsSpace)
	for ; limit > 0; limit-- {
		i := index(rest, IsSpace)
		if i < 0 {
			break
		}
		_, n := utf8.DecodeRuneInString(rest[i:])
		before, after := rest[:i], rest[i+n:]
		if fromRight {
			before, after = after, before
		}
		parts = append(parts, before)
		rest = trim(after, IsSpace)
	}
	if rest != "" {
		parts = append(parts, rest)
	}
	if fromRight {
		slices.Reverse(parts)
	}
	return parts
}

// SplitRight splits at a separator from the right, at most limit times.
func SplitRight(s, sep string, limit int) []string {
	var parts []string
	for ; limit > 0; limit-- {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(sep):])
		s = s[:i]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return parts
}

// SplitLines splits at every line ending that Python knows.
func SplitLines(s string, keepEnds bool) []string {
	var lines []string
	for s != "" {
		end := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if end < 0 {
			return append(lines, s)
		}
		_, n := utf8.DecodeRuneInString(s[end:])
		if strings.HasPrefix(s[end:], "\r\n") {
			n = 2
		}
		line := s[:end]
		if keepEnds {
			line = s[:end+n]
		}
		lines, s = append(lines, line), s[end+n:]
	}
	return lines
}

// Prefix returns the first n characters of s, or s if n is negative.
func Prefix(s string, n int) string {
	for at := range s {
		if n == 0 {
			return s[:at]
		}
		n--
	}
	return s
}

// CharAt returns the i-th character, or "" if there is none.
func CharAt(s string, i int) string { return Prefix(s[len(Prefix(s, i)):], 1) }
