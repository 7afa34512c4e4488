package pytext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// ChangeCase applies one of Python's methods upper, lower, casefold, swapcase, title and capitalize. Unlike in Go, one
// character may become several: ß becomes SS.
func ChangeCase(method, s string) string {
	b := make([]byte, 0, len(s))
	inWord := false
	for i, c := range s {
		switch {
		case method == "upper", method == "swapcase" && unicode.IsLower(c):
			b = appendUpper(b, c)
		case method == "lower", method == "swapcase" && unicode.IsUpper(c):
			b = appendLower(b, s, i, c)
		case method == "swapcase":
			b = utf8.AppendRune(b, c)
		case method == "casefold":
			b = appendFolded(b, c)
		default: // title, capitalize
			if inWord {
				b = appendLower(b, s, i, c)
			} else {
				b = appendTitle(b, c)
			}
			inWord = method == "capitalize" || isCased(c)
		}
	}
	return string(b)
}

func isCased(c rune) bool {
	return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c)
}

func appendUpper(b []byte, c rune) []byte {
	if s := specialUpper(c); s != "" {
		return append(b, s...)
	}
	return utf8.AppendRune(b, unicode.ToUpper(c))
}

// appendTitle appends c as the first character of a word. If its upper case has several characters and it has no
// title case of one character, the letters after the first are lower case and an iota becomes a mark.
func appendTitle(b []byte, c rune) []byte {
	title := unicode.ToTitle(c)
	if s := specialUpper(c); s != "" && title == c && !unicode.IsTitle(c) {
		first, n := utf8.DecodeRuneInString(s)
		rest := strings.ReplaceAll(s[n:], "\u0399", "\u0345")
		if unicode.IsUpper(first) {
			rest = strings.ToLower(rest)
		}
		return append(utf8.AppendRune(b, first), rest...)
	}
	return utf8.AppendRune(b, title)
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

func appendFolded(b []byte, c rune) []byte {
	if s := specialUpper(c); s != "" {
		return append(b, strings.ToLower(s)...)
	}
	switch c {
	case 'İ':
		return append(b, "i\u0307"...)
	case 'ẞ':
		return append(b, "ss"...)
	case 'ς':
		return append(b, "σ"...)
	}
	return utf8.AppendRune(b, unicode.ToLower(c))
}

// specialUpper returns the upper case of c if it has several characters, else "". Source: Unicode's SpecialCasing.txt.
func specialUpper(c rune) string {
	switch {
	case c < 'ß':
		return ""
	case c >= 0x1f80 && c < 0x1fb0: // Greek letters with an iota below: eight small ones, then eight capitals
		base := [3]rune{0x1f08, 0x1f28, 0x1f68}[(c-0x1f80)/16]
		return string([]rune{base + c%8, 0x399})
	}
	return upperTable[c]
}

var upperTable = map[rune]string{
	0xdf: "SS", 0x149: "\u02bcN", 0x1f0: "J\u030c", 0x390: "\u0399\u0308\u0301",
	0x3b0: "\u03a5\u0308\u0301", 0x587: "\u0535\u0552", 0x1e96: "H\u0331", 0x1e97: "T\u0308",
	0x1e98: "W\u030a", 0x1e99: "Y\u030a", 0x1e9a: "A\u02be", 0x1f50: "\u03a5\u0313",
	0x1f52: "\u03a5\u0313\u0300", 0x1f54: "\u03a5\u0313\u0301", 0x1f56: "\u03a5\u0313\u0342", 0x1fb2: "\u1fba\u0399",
	0x1fb3: "\u0391\u0399", 0x1fb4: "\u0386\u0399", 0x1fb6: "\u0391\u0342", 0x1fb7: "\u0391\u0342\u0399",
	0x1fbc: "\u0391\u0399", 0x1fc2: "\u1fca\u0399", 0x1fc3: "\u0397\u0399", 0x1fc4: "\u0389\u0399",
	0x1fc6: "\u0397\u0342", 0x1fc7: "\u0397\u0342\u0399", 0x1fcc: "\u0397\u0399", 0x1fd2: "\u0399\u0308\u0300",
	0x1fd3: "\u0399\u0308\u0301", 0x1fd6: "\u0399\u0342", 0x1fd7: "\u0399\u0308\u0342", 0x1fe2: "\u03a5\u0308\u0300",
	0x1fe3: "\u03a5\u0308\u0301", 0x1fe4: "\u03a1\u0313", 0x1fe6: "\u03a5\u0342", 0x1fe7: "\u03a5\u0308\u0342",
	0x1ff2: "\u1ffa\u0399", 0x1ff3: "\u03a9\u0399", 0x1ff4: "\u038f\u0399", 0x1ff6: "\u03a9\u0342",
	0x1ff7: "\u03a9\u0342\u0399", 0x1ffc: "\u03a9\u0399", 0xfb00: "FF", 0xfb01: "FI",
	0xfb02: "FL", 0xfb03: "FFI", 0xfb04: "FFL", 0xfb05: "ST",
	0xfb06: "ST", 0xfb13: "\u0544\u0546", 0xfb14: "\u0544\u0535", 0xfb15: "\u0544\u053b",
	0xfb16: "\u054e\u0546", 0xfb17: "\u0544\u053d",
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
