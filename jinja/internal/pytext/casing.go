package pytext

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// ChangeCase applies one of Python's methods upper, lower, casefold, swapcase, title and capitalize. Unlike in Go, one
// character may become several: ß becomes SS.
func ChangeCase(method, s string) string {
	switch method {
	case "upper":
		return cases.Upper(language.Und).String(s)
	case "casefold":
		return cases.Fold().String(s)
	}
	b := make([]byte, 0, len(s))
	inWord := false
	for i, c := range s {
		switch {
		case method == "lower", method == "swapcase" && unicode.IsUpper(c):
			b = appendLower(b, s, i, c)
		case method == "swapcase" && unicode.IsLower(c):
			b = append(b, cases.Upper(language.Und).String(string(c))...)
		case method == "swapcase":
			b = utf8.AppendRune(b, c)
		case inWord: // title, capitalize
			b = appendLower(b, s, i, c)
		default:
			b = append(b, cases.Title(language.Und, cases.NoLower).String(string(c))...)
		}
		inWord = method == "capitalize" || method == "title" && isCased(c)
	}
	return string(b)
}

func isCased(c rune) bool {
	return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c)
}

// appendLower appends the lower case of c, which is at s[i]. A sigma at the end of a word has a form of its own.
func appendLower(b []byte, s string, i int, c rune) []byte {
	switch {
	case c == 'İ':
		return append(b, "i\u0307"...)
	case c == 'Σ' && finalSigma(s, i):
		return append(b, "ς"...)
	default:
		return utf8.AppendRune(b, unicode.ToLower(c))
	}
}

// finalSigma reports whether a cased character precedes s[i] and none follows it. Marks between them are ignored.
func finalSigma(s string, i int) bool {
	ignorable := func(c rune) bool { return unicode.IsMark(c) || strings.ContainsRune("'.:^`·’", c) }
	before, _ := utf8.DecodeLastRuneInString(strings.TrimRightFunc(s[:i], ignorable))
	after, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(s[i+len("Σ"):], ignorable))
	return isCased(before) && !isCased(after)
}

// IsCase applies one of Python's methods islower, isupper and istitle.
func IsCase(method, s string) bool {
	found, inWord := false, false
	for _, c := range s {
		title := unicode.IsTitle(c)
		upper, lower := title || unicode.IsUpper(c), unicode.IsLower(c)
		switch {
		case method == "islower" && upper, method == "isupper" && (lower || title):
			return false
		case method == "istitle" && (upper && inWord || lower && !inWord):
			return false
		}
		inWord = upper || lower
		found = found || inWord
	}
	return found
}
