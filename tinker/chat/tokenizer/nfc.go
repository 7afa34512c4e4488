package tokenizer

import (
	"slices"
	"sync"
	"unicode/utf8"
)

// The constants of Hangul syllables, Unicode section 3.12.
const (
	hangulBase = 0xac00
	leadBase   = 0x1100
	vowelBase  = 0x1161
	trailBase  = 0x11a7
	leads      = 19
	vowels     = 21
	trails     = 28
	syllables  = leads * vowels * trails
)

// nfcTables are the generated tables as maps.
type nfcTables struct {
	split map[rune][2]rune
	join  map[[2]rune]rune
	class map[rune]uint8
	// busy are the characters that NFC may change or move. Text without any of them is in NFC.
	busy map[rune]bool
}

var nfcTable = sync.OnceValue(func() *nfcTables {
	t := &nfcTables{split: map[rune][2]rune{}, join: map[[2]rune]rune{}, class: map[rune]uint8{}, busy: map[rune]bool{}}
	for _, run := range combiningRuns {
		for c := run[0]; c <= run[1]; c++ {
			t.class[c] = uint8(run[2])
			t.busy[c] = true
		}
	}
	for _, d := range decompositions {
		t.split[d[0]] = [2]rune{d[1], d[2]}
		if d[2] == 0 || slices.Contains(notComposed[:], d[0]) {
			t.busy[d[0]] = true
			continue
		}
		t.join[[2]rune{d[1], d[2]}] = d[0]
		t.busy[d[2]] = true
	}
	return t
})

// nfc returns text in Unicode's normalization form C, by the reference's tables.
func nfc(text string) string {
	table := nfcTable()
	at := 0
	for at < len(text) && text[at] < utf8.RuneSelf {
		at++
	}
	for _, c := range text[at:] {
		if c >= 0x300 && (table.busy[c] || c >= vowelBase && c < trailBase+trails) {
			return table.normalize(text)
		}
	}
	return text
}

func (t *nfcTables) normalize(text string) string {
	chars := make([]rune, 0, len(text))
	for _, c := range text {
		chars = t.decompose(chars, c)
	}
	t.reorder(chars)
	return string(t.compose(chars))
}

func (t *nfcTables) decompose(dst []rune, c rune) []rune {
	if s := c - hangulBase; s >= 0 && s < syllables {
		dst = append(dst, leadBase+s/(vowels*trails), vowelBase+s%(vowels*trails)/trails)
		if s%trails != 0 {
			dst = append(dst, trailBase+s%trails)
		}
		return dst
	}
	parts, ok := t.split[c]
	if !ok {
		return append(dst, c)
	}
	dst = t.decompose(dst, parts[0])
	if parts[1] != 0 {
		dst = t.decompose(dst, parts[1])
	}
	return dst
}

// reorder sorts each run of marks by class; marks of the same class keep their order.
func (t *nfcTables) reorder(chars []rune) {
	for i := 0; i < len(chars); i++ {
		if t.class[chars[i]] == 0 {
			continue
		}
		begin := i
		for i < len(chars) && t.class[chars[i]] != 0 {
			i++
		}
		slices.SortStableFunc(chars[begin:i], func(a, b rune) int { return int(t.class[a]) - int(t.class[b]) })
	}
}

// compose joins, in place, each character to the last starter before it unless one between them blocks it.
func (t *nfcTables) compose(chars []rune) []rune {
	out := chars[:0]
	starter, last := -1, -1 // the index of the starter in out, and the class of the last character after it
	for _, c := range chars {
		class := int(t.class[c])
		if starter >= 0 && (last < class || last == -1) {
			if joined, ok := t.pair(out[starter], c); ok {
				out[starter] = joined
				continue
			}
		}
		if class == 0 {
			starter, last = len(out), -1
		} else {
			last = class
		}
		out = append(out, c)
	}
	return out
}

// pair composes two characters.
func (t *nfcTables) pair(a, b rune) (rune, bool) {
	if l, v := a-leadBase, b-vowelBase; l >= 0 && l < leads && v >= 0 && v < vowels {
		return hangulBase + (l*vowels+v)*trails, true
	}
	if s, v := a-hangulBase, b-trailBase; s >= 0 && s < syllables && s%trails == 0 && v > 0 && v < trails {
		return a + v, true
	}
	c, ok := t.join[[2]rune{a, b}]
	return c, ok
}
