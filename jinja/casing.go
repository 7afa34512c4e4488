package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// changeCase is one of the methods of str that change case. Unlike Go's, Python's change one character into
// several where the language does: ß becomes SS.
func changeCase(name, s string) string {
	var b strings.Builder
	b.Grow(len(s))
	inWord := false
	for i, c := range s {
		switch name {
		case "upper":
			writeUpper(&b, c)
		case "lower":
			writeLower(&b, s, i, c)
		case "casefold":
			writeFolded(&b, c)
		case "swapcase":
			switch {
			case unicode.IsUpper(c):
				writeLower(&b, s, i, c)
			case unicode.IsLower(c):
				writeUpper(&b, c)
			default:
				b.WriteRune(c)
			}
		default: // title, capitalize
			if inWord {
				writeLower(&b, s, i, c)
			} else {
				writeTitle(&b, c)
			}
			inWord = name == "capitalize" || isCased(c)
		}
	}
	return b.String()
}

func isCased(c rune) bool {
	return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c)
}

func writeUpper(b *strings.Builder, c rune) {
	if s, ok := upperSpecial[c]; ok {
		b.WriteString(s)
		return
	}
	b.WriteRune(unicode.ToUpper(c))
}

func writeTitle(b *strings.Builder, c rune) {
	if s, ok := titleSpecial[c]; ok {
		b.WriteString(s)
		return
	}
	if s, ok := upperSpecial[c]; ok {
		b.WriteString(s)
		return
	}
	b.WriteRune(unicode.ToTitle(c))
}

// writeLower writes the lower case of the character at s[i]. A capital sigma at the end of a word is a final
// one.
func writeLower(b *strings.Builder, s string, i int, c rune) {
	switch {
	case c == 'İ':
		b.WriteString("i\u0307")
	case c == 'Σ' && finalSigma(s, i):
		b.WriteRune('ς')
	default:
		b.WriteRune(unicode.ToLower(c))
	}
}

// finalSigma reports whether a cased character stands before s[i] and none behind it, marks between them not
// counted.
func finalSigma(s string, i int) bool {
	ignorable := func(c rune) bool { return unicode.IsMark(c) || strings.ContainsRune("'.:^`·’", c) }
	before, _ := utf8.DecodeLastRuneInString(strings.TrimRightFunc(s[:i], ignorable))
	after, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(s[i+len("Σ"):], ignorable))
	return isCased(before) && !isCased(after)
}

func writeFolded(b *strings.Builder, c rune) {
	if s, ok := upperSpecial[c]; ok {
		b.WriteString(strings.ToLower(s))
		return
	}
	switch c {
	case 'İ':
		b.WriteString("i\u0307")
	case 'ẞ':
		b.WriteString("ss")
	case 'ς':
		b.WriteRune('σ')
	default:
		b.WriteRune(unicode.ToLower(c))
	}
}
