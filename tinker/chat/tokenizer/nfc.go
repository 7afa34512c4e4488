package tokenizer

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/unicode/rangetable"
)

// nfcKnown holds the characters that the reference's NFC knows. It neither changes nor moves those of later versions of
// Unicode.
var nfcKnown = sync.OnceValue(func() *unicode.RangeTable { return rangetable.Assigned("9.0.0") })

// decomposed is a character without a canonical decomposition.
type decomposed struct {
	char rune
	norm.Properties
}

// nfc returns text in Unicode's normalization form C as the reference does. [norm.NFC] would move characters outside
// nfcKnown and insert U+034F into a run of more than 30 marks.
func nfc(text string) string {
	if strings.IndexFunc(text, mayCompose) < 0 || norm.NFC.IsNormalString(text) {
		return text
	}
	var chars []decomposed
	for _, c := range text {
		if !unicode.Is(nfcKnown(), c) {
			chars = append(chars, decomposed{char: c})
			continue
		}
		for _, part := range norm.NFD.String(string(c)) {
			chars = append(chars, decomposed{part, norm.NFC.PropertiesString(string(part))})
		}
	}
	sortMarks(chars)
	return compose(chars)
}

// mayCompose is false for the characters of most texts: they are in NFC wherever they stand.
func mayCompose(c rune) bool {
	return c >= 0x300 && (c < 0x4e00 || c >= 0xa000) && (c < 0xac00 || c > 0xd7a3)
}

// sortMarks sorts each run of marks by class. Marks of the same class keep their order.
func sortMarks(chars []decomposed) {
	isStarter := func(d decomposed) bool { return d.CCC() == 0 }
	for len(chars) > 0 {
		n := slices.IndexFunc(chars, isStarter)
		if n < 0 {
			n = len(chars)
		}
		slices.SortStableFunc(chars[:n], func(a, b decomposed) int { return cmp.Compare(a.CCC(), b.CCC()) })
		chars = chars[min(n+1, len(chars)):]
	}
}

// compose joins each character to the last starter (class 0) before it, unless a character between them blocks it.
func compose(chars []decomposed) string {
	var out []rune
	starter := -1  // its index in out
	var last uint8 // the class of the last character in out
	for _, d := range chars {
		open := starter >= 0 && !d.BoundaryBefore() && (starter == len(out)-1 || last < d.CCC())
		if open {
			joined := norm.NFC.String(string([]rune{out[starter], d.char}))
			if c, n := utf8.DecodeRuneInString(joined); n == len(joined) && unicode.Is(nfcKnown(), c) {
				out[starter] = c
				continue
			}
		}
		if last = d.CCC(); last == 0 {
			starter = len(out)
		}
		out = append(out, d.char)
	}
	return string(out)
}
