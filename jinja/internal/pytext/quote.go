package pytext

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Quote returns the repr of a string.
func Quote(s string) string {
	q := '\''
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		q = '"'
	}
	b := make([]byte, 0, len(s)+2)
	b = utf8.AppendRune(b, q)
	for _, c := range s {
		switch {
		case c == q || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\t' || c == '\n' || c == '\r':
			b = append(b, '\\', "tn--r"[c-'\t'])
		case unicode.IsPrint(c):
			b = utf8.AppendRune(b, c)
		case c < 0x100:
			b = fmt.Appendf(b, `\x%02x`, c)
		case c < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = fmt.Appendf(b, `\U%08x`, c)
		}
	}
	return string(utf8.AppendRune(b, q))
}

// QuoteJSON quotes a string as json.dumps does; ascii is its option ensure_ascii.
func QuoteJSON(s string, ascii bool) string {
	b := make([]byte, 0, len(s)+2)
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c >= '\b' && c <= '\r' && c != '\v':
			b = append(b, '\\', "btn-fr"[c-'\b'])
		case c < 0x20 || ascii && c >= 0x7f:
			for _, unit := range utf16.AppendRune(nil, c) {
				b = fmt.Appendf(b, `\u%04x`, unit)
			}
		default:
			b = utf8.AppendRune(b, c)
		}
	}
	return string(append(b, '"'))
}
