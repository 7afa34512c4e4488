package openai

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/agl-go/agl/internal/rawjson"
)

// maxDepth is how deep lists and objects may be nested, as in jsontext.
const maxDepth = 10000

// ValidObject reports whether raw is one JSON object by RFC 8259 in UTF-8, perhaps with
// space around it. Names may repeat. It agrees with jsontext and is seven times as fast
// for long strings, which most bytes of replies are in.
func ValidObject(raw []byte) bool { return ValidObjectWith(raw, nil) }

// ValidObjectWith is ValidObject for an object with a list that may begin like known, a valid list of
// numbers. The shared part is compared, which is faster than parsing it.
func ValidObjectWith(raw, known []byte) bool {
	// No JSON has a zero byte. The search is for speed: it brings the document into the cache with many reads at once. The
	// checks below would wait for each cache line.
	if bytes.IndexByte(raw, 0) >= 0 {
		return false
	}
	i := rawjson.SkipSpace(raw, 0)
	if i == len(raw) || raw[i] != '{' {
		return false
	}
	v := validator{raw: raw}
	if len(known) > len("[]") {
		v.known = known[1 : len(known)-1]
	}
	i = v.value(i, 0)
	return i >= 0 && rawjson.SkipSpace(raw, i) == len(raw)
}

// Checked stands for a JSON object that was found valid, and knows where its long strings end: who reads it again need not look for
// that.
type Checked struct{ long []bounds }

type bounds struct{ start, end int }

// longString is the length in bytes from which strings are noted. What that takes is at most a sixteenth of the document.
const longString = 512

// Check returns nil if raw is not a valid JSON object, as [ValidObject] defines it.
func Check(raw []byte) *Checked {
	_, _, checked := eachChecked(raw, func(rawjson.Member) {})
	return checked
}

// Skip returns a function that does what [rawjson.SkipValue] does in raw, which is what was checked. Values must be skipped in the order
// in which they start.
func (c *Checked) Skip(raw []byte) (skip func(i int) int) {
	long := c.long
	return func(i int) int {
		for len(long) > 0 && long[0].start < i {
			long = long[1:]
		}
		if len(long) > 0 && long[0].start == i {
			return long[0].end
		}
		return rawjson.SkipValue(raw, i)
	}
}

// eachChecked is [rawjson.EachMember] that also returns the number of parts, up to what is not valid, and what [Check] does, in the same walk.
func eachChecked(raw []byte, visit func(m rawjson.Member)) (complete bool, parts int, _ *Checked) {
	checked := &Checked{make([]bounds, 0, min(len(raw)/longString, 512))}
	v := validator{raw: raw, checked: checked}
	valid := true
	end := rawjson.WalkMembers(raw, rawjson.SkipSpace(raw, 0), func(m rawjson.Member) int {
		m.End = -1
		if valid && validString(raw, m.Start) >= 0 {
			m.End = v.value(m.ValueStart, 1)
		}
		// Words and numbers may go on after what is valid.
		if c := raw[m.ValueStart]; m.End < 0 || c != '"' && c != '{' && c != '[' {
			end := rawjson.SkipValue(raw, m.ValueStart)
			valid = valid && m.End == end
			m.End = end
		}
		if m.End >= 0 {
			m.Value = raw[m.ValueStart:m.End:m.End]
			visit(m)
		}
		return m.End
	})
	if !valid || end < 0 || rawjson.SkipSpace(raw, end) != len(raw) {
		checked = nil
	}
	return end >= 0, v.parts, checked
}

// validator checks one document.
type validator struct {
	raw   []byte
	known []byte // the inside of a list of numbers; may be nil
	// checked gets the long strings; it may be nil.
	checked *Checked
	parts   int // see [MaxParts]; so far
}

// value returns the position after the valid value that starts at i, or -1.
func (v *validator) value(i, depth int) int {
	raw := v.raw
	if i >= len(raw) || depth > maxDepth {
		return -1
	}
	switch raw[i] {
	case '"':
		end := validString(raw, i)
		if end-i >= longString && v.checked != nil {
			v.checked.long = append(v.checked.long, bounds{i, end})
		}
		return end
	case '{', '[':
		v.parts++
		return v.inside(i, depth+1)
	case 't':
		return validWord(raw, i, "true")
	case 'f':
		return validWord(raw, i, "false")
	case 'n':
		return validWord(raw, i, "null")
	default:
		return validNumber(raw, i)
	}
}

// inside checks an object or a list.
func (v *validator) inside(i, depth int) int {
	raw := v.raw
	object := raw[i] == '{'
	end := raw[i] + 2 // of the brackets in ASCII
	if depth > maxDepth {
		return -1
	}
	i = rawjson.SkipSpace(raw, i+1)
	if i < len(raw) && raw[i] == end {
		return i + 1
	}
	if !object {
		if v.known != nil && bytes.HasPrefix(raw[i:], v.known) {
			i += bytes.LastIndexByte(v.known, ',') + 1 // the last number may have more digits here
		}
		i = plainNumbers(raw, i)
	}
	for {
		if object {
			if i >= len(raw) || raw[i] != '"' {
				return -1
			}
			if i = validString(raw, i); i < 0 {
				return -1
			}
			if i = rawjson.SkipSpace(raw, i); i >= len(raw) || raw[i] != ':' {
				return -1
			}
			i = rawjson.SkipSpace(raw, i+1)
		}
		if !object && i < len(raw) && (raw[i] == '"' || raw[i] == 'n') {
			v.parts++
		}
		if i = v.value(i, depth); i < 0 {
			return -1
		}
		if i = rawjson.SkipSpace(raw, i); i >= len(raw) {
			return -1
		}
		switch raw[i] {
		case ',':
			i = rawjson.SkipSpace(raw, i+1)
		case end:
			return i + 1
		default:
			return -1
		}
	}
}

// plainNumbers returns the position after the elements at i that are integers without a sign, each followed by
// a comma. It reads eight bytes at once, because in many replies most bytes are token ids.
func plainNumbers(raw []byte, i int) int {
	const ones, zeros, commas = 0x0101010101010101, '0' * 0x0101010101010101, ',' * 0x0101010101010101
	const low = 0x7f * ones
	isZero := func(x uint64) uint64 { return ^((x&low + low) | x) & highBits } // of each byte, in its highest bit
	at := i
	afterComma, afterZero := uint64(0x80), uint64(0) // whether the last byte of the previous word was one
	for at+8 <= len(raw) {
		w := binary.LittleEndian.Uint64(raw[at:])
		digit := w ^ zeros
		isDigit := ^((digit&low + 0x76*ones) | digit) & highBits
		isComma := isZero(w ^ commas)
		begins := isComma<<8 | afterComma
		leading := isZero(digit) & begins
		if isDigit|isComma != highBits || isComma&begins != 0 || isDigit&(leading<<8|afterZero) != 0 {
			break
		}
		afterComma, afterZero = isComma>>56, leading>>56
		at += 8
	}
	return i + bytes.LastIndexByte(raw[i:at], ',') + 1
}

func validWord(raw []byte, i int, word string) int {
	if len(raw)-i < len(word) || string(raw[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func validNumber(raw []byte, i int) int {
	if raw[i] == '-' {
		i++
	}
	switch {
	case i < len(raw) && raw[i] == '0':
		i++
	default:
		if i = digits(raw, i); i < 0 {
			return -1
		}
	}
	if i < len(raw) && raw[i] == '.' {
		if i = digits(raw, i+1); i < 0 {
			return -1
		}
	}
	if i < len(raw) && (raw[i] == 'e' || raw[i] == 'E') {
		if i++; i < len(raw) && (raw[i] == '+' || raw[i] == '-') {
			i++
		}
		i = digits(raw, i)
	}
	return i
}

// digits returns the position after the digits at i, or -1 if there are none.
func digits(raw []byte, i int) int {
	start := i
	for i < len(raw) && '0' <= raw[i] && raw[i] <= '9' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// validString checks a string, whose bytes must be plain ASCII, escapes or UTF-8.
func validString(raw []byte, i int) int {
	i++
	for {
		i += plain(raw[i:])
		if i >= len(raw) {
			return -1
		}
		switch c := raw[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			if i = validEscape(raw, i); i < 0 {
				return -1
			}
		default:
			r, size := utf8.DecodeRune(raw[i:])
			if r == utf8.RuneError && size == 1 {
				return -1
			}
			i += size
		}
	}
}

// plain returns the number of bytes at the start of raw that are ASCII, but no quotes,
// backslashes or control characters.
func plain(raw []byte) int {
	n := 0
	if len(raw) >= 8 { // most strings are short
		if marks := special(binary.LittleEndian.Uint64(raw)) & highBits; marks != 0 {
			return bits.TrailingZeros64(marks) / 8
		}
		n = 8
	}
	for ; len(raw)-n >= 32; n += 32 {
		four := raw[n : n+32]
		a, b := special(binary.LittleEndian.Uint64(four)), special(binary.LittleEndian.Uint64(four[8:]))
		c, d := special(binary.LittleEndian.Uint64(four[16:])), special(binary.LittleEndian.Uint64(four[24:]))
		if (a|b|c|d)&highBits != 0 {
			break
		}
	}
	for ; len(raw)-n >= 8; n += 8 {
		if marks := special(binary.LittleEndian.Uint64(raw[n:])) & highBits; marks != 0 {
			return n + bits.TrailingZeros64(marks)/8
		}
	}
	for ; n < len(raw); n++ {
		if c := raw[n]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	return n
}

const highBits = 0x8080808080808080

// special sets the high bit of each of eight bytes that is not plain. With their second
// bit flipped, control characters and quotes are the bytes below '!'. A borrow can only
// mark a byte above one that is marked already.
func special(x uint64) uint64 {
	const low = 0x0101010101010101
	return x | ((x ^ low*2) - low*'!') | ((x ^ low*'\\') - low)
}

// validEscape checks an escape. Surrogates must come in pairs.
func validEscape(raw []byte, i int) int {
	if i+1 >= len(raw) {
		return -1
	}
	switch raw[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	}
	switch unit, ok := codeUnit(raw[i:]); {
	case !ok:
		return -1
	case !utf16.IsSurrogate(unit):
		return i + unicodeEscape
	case SurrogatePair(raw[i:]) == utf8.RuneError:
		return -1
	}
	return i + 2*unicodeEscape
}

// PairSurrogates returns raw with U+FFFD in place of each escape that is half of a surrogate pair, as JavaScript and Python write
// a text that was cut within a character. It returns raw itself if there is none.
func PairSurrogates(raw []byte) []byte {
	out := raw
	for i := 0; i < len(raw); i++ {
		next := bytes.IndexByte(raw[i:], '\\')
		if next < 0 {
			break
		}
		i += next
		if end := validEscape(raw, i); end >= 0 {
			i = end - 1
			continue
		}
		if _, ok := codeUnit(raw[i:]); ok {
			if &out[0] == &raw[0] {
				out = bytes.Clone(raw)
			}
			copy(out[i:], `\ufffd`)
			i += 5
		}
	}
	return out
}
