package postgres

import (
	"strings"
	"unicode/utf8"
)

// PostgreSQL accepts no U+0000 and no invalid UTF-8 in a text. Each such byte is stored as
// three noncharacters of Unicode (U+FDD0 to U+FDEF): a mark and two hexadecimal digits.
// The bytes of these noncharacters themselves are escaped, too. So every text is read back
// unchanged, and a text contains another one if and only if their stored forms do.
const (
	firstSpecial = '\uFDD0'
	lastSpecial  = '\uFDEF'
	mark         = lastSpecial  // starts an escaped byte
	digit        = firstSpecial // the first of the 16 digits
)

func special(r rune) bool { return r == 0 || r >= firstSpecial && r <= lastSpecial }

// text returns a string in the form of a text column.
func text(s string) string {
	if plain(s) {
		return s
	}
	if utf8.ValidString(s) && strings.IndexFunc(s, special) < 0 {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if special(r) || r == utf8.RuneError && size == 1 {
			for _, b := range []byte(s[:size]) {
				out.WriteRune(mark)
				out.WriteRune(digit + rune(b>>4))
				out.WriteRune(digit + rune(b&15))
			}
		} else {
			out.WriteRune(r)
		}
		s = s[size:]
	}
	return out.String()
}

// plain reports whether a string is ASCII without U+0000, as most are.
func plain(s string) bool {
	for i := range len(s) {
		if s[i]-1 >= utf8.RuneSelf-1 {
			return false
		}
	}
	return true
}

// untext is the reverse of text.
func untext(s string) string {
	if !strings.ContainsRune(s, mark) {
		return s
	}
	var out strings.Builder
	digits, b := 0, byte(0)
	for _, r := range s {
		switch {
		case r == mark:
			digits, b = 2, 0
		case digits > 0:
			b = b<<4 | byte(r-digit)
			if digits--; digits == 0 {
				out.WriteByte(b)
			}
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// texts returns the strings of a list in the form of a text column.
func texts[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = text(string(s))
	}
	return out
}
