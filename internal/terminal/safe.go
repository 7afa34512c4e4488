// Package terminal makes text of unknown origin safe to write to a terminal. It knows neither layout nor colours.
package terminal

import (
	"fmt"
	"strings"
	"unicode"
)

// Safe replaces what a terminal would take for a command: control characters other than tabs and
// line ends, bytes that are not UTF-8, and the characters that change the direction of text.
func Safe(text string) string {
	return strings.Map(func(r rune) rune {
		if commands(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// SafeJSON writes these characters of a JSON document as escapes, which mean the same.
func SafeJSON(document string) string {
	if strings.IndexFunc(document, commands) < 0 {
		return document
	}
	var out strings.Builder
	for _, r := range document {
		if commands(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

func commands(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r == '\u061c', r == '\u200e', r == '\u200f', r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
		return true
	default:
		return unicode.IsControl(r)
	}
}
