package postgres

import (
	"strings"
	"unicode/utf8"
)

// PostgreSQL takes every text but the character U+0000 and what is no UTF-8. Such
// a byte is written as a code point that is no character, with another behind it
// that tells which byte it is; so every text comes back as it was, and what one
// contains, it contains still.
const (
	mark     = '\U0010FFFE'
	markSelf = '\U0010FFFF' // behind a mark: the mark itself
	markByte = 0xF0000      // behind a mark: this plus a byte
)

// text is a string as a column of text keeps it.
func text(s string) string {
	if strings.IndexByte(s, 0) < 0 && utf8.ValidString(s) && !strings.ContainsRune(s, mark) {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == 0 || r == utf8.RuneError && size == 1:
			out.WriteRune(mark)
			out.WriteRune(markByte + rune(s[0]))
		case r == mark:
			out.WriteRune(mark)
			out.WriteRune(markSelf)
		default:
			out.WriteRune(r)
		}
		s = s[size:]
	}
	return out.String()
}

// untext is the reverse of text.
func untext(s string) string {
	if !strings.ContainsRune(s, mark) {
		return s
	}
	var out strings.Builder
	marked := false
	for _, r := range s {
		switch {
		case !marked && r == mark:
			marked = true
			continue
		case marked && r == markSelf:
			out.WriteRune(mark)
		case marked:
			out.WriteByte(byte(r - markByte))
		default:
			out.WriteRune(r)
		}
		marked = false
	}
	return out.String()
}

// texts is text for each of a list.
func texts[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = text(string(s))
	}
	return out
}
