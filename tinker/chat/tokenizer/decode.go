package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// byteLevelByte returns the byte for which a character of the byte-level alphabet stands; ok is false for other
// characters. Printable bytes stand for themselves; the other 68 are the characters from U+0100 on.
func byteLevelByte(c rune) (b byte, ok bool) {
	switch {
	case c >= '!' && c <= '~' || c >= '¡' && c <= '¬' || c >= '®' && c <= 'ÿ':
		return byte(c), true
	case c >= 0x100 && c <= 0x120:
		return byte(c - 0x100), true
	case c >= 0x121 && c <= 0x142:
		return byte(c - 0x121 + 0x7f), true
	case c == 0x143:
		return 0xad, true
	}
	return 0, false
}

// byteLevelText is the text of a token of the byte-level alphabet. A token with any other character, which only added
// tokens have, is its own text.
func byteLevelText(token string) string {
	var b strings.Builder
	for _, c := range token {
		one, ok := byteLevelByte(c)
		if !ok {
			return token
		}
		b.WriteByte(one)
	}
	return b.String()
}

// Decode returns the text of ids, special tokens included. Bytes that are no character become U+FFFD as in the reference:
// one for each broken sequence; with byte fallback, one for each byte of a run of byte tokens that is not UTF-8. Unknown
// ids have no text.
func (t *Tokenizer) Decode(ids []int32) string {
	d := Decoder{t: t}
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(d.Add(id))
	}
	b.WriteString(d.Flush())
	return b.String()
}

// Decoder decodes ids one by one. The texts that it returns make up what Decode returns for all ids: it holds bytes back
// until they are a character or cannot become one.
type Decoder struct {
	t       *Tokenizer
	pending []byte // the beginning of a character; with byte fallback, a run of byte tokens
}

// NewDecoder returns a decoder.
func (t *Tokenizer) NewDecoder() *Decoder { return &Decoder{t: t} }

// Add decodes an id and returns the text that is certain by then.
func (d *Decoder) Add(id int32) string {
	if id < 0 || int(id) >= len(d.t.tokens) {
		return ""
	}
	token := d.t.tokens[id]
	if !d.t.byteLevel {
		if b, ok := d.t.fallback(id, token); ok {
			d.pending = append(d.pending, b)
			return ""
		}
		return d.Flush() + strings.ReplaceAll(token, d.t.spaceMark, " ")
	}
	if len(d.pending) == 0 && utf8.ValidString(token) {
		return token
	}
	d.pending = append(d.pending, token...)
	text, rest := validUTF8(d.pending, false)
	d.pending = append(d.pending[:0], rest...)
	return text
}

// Flush returns the text of the bytes that were held back.
func (d *Decoder) Flush() string {
	if len(d.pending) == 0 {
		return ""
	}
	var text string
	switch {
	case d.t.byteLevel:
		text, _ = validUTF8(d.pending, true)
	case utf8.Valid(d.pending):
		text = string(d.pending)
	default:
		text = strings.Repeat("\ufffd", len(d.pending))
	}
	d.pending = d.pending[:0]
	return text
}

// TokenBytes returns the bytes of an id, which may be only a part of a character. Unknown ids have none.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	if id < 0 || int(id) >= len(t.tokens) {
		return nil
	}
	token := t.tokens[id]
	if t.byteLevel {
		return []byte(token)
	}
	if b, ok := t.fallback(id, token); ok {
		return []byte{b}
	}
	return []byte(strings.ReplaceAll(token, t.spaceMark, " "))
}

// fallback is the byte of a byte token.
func (t *Tokenizer) fallback(id int32, token string) (byte, bool) {
	if len(token) != len("<0x00>") || token[0] != '<' {
		return 0, false
	}
	high, low := strings.IndexByte("0123456789ABCDEF", token[3]), strings.IndexByte("0123456789ABCDEF", token[4])
	if high < 0 || low < 0 {
		return 0, false
	}
	b := byte(high<<4 | low)
	return b, t.bytes[b] == id
}

// validUTF8 returns the text of b with each maximal subpart of a broken character replaced by U+FFFD (Unicode section 3.9,
// "U+FFFD Substitution of Maximal Subparts"). It leaves a rest that may still become a character, unless b is the end.
func validUTF8(b []byte, end bool) (text string, rest []byte) {
	var out strings.Builder
	for len(b) > 0 {
		c, n := utf8.DecodeRune(b)
		if c != utf8.RuneError || n > 1 {
			out.Write(b[:n])
			b = b[n:]
			continue
		}
		n, open := subpart(b)
		if open && !end {
			return out.String(), b
		}
		out.WriteString("\ufffd")
		b = b[n:]
	}
	return out.String(), nil
}

// subpart returns the length of the longest prefix of b that could begin a character, at least 1. It is open if it is all
// of b, so that more bytes could complete it.
func subpart(b []byte) (n int, open bool) {
	for n < len(b) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return max(n, 1), n == len(b)
}
