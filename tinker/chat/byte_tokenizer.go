package chat

import "strings"

// Bytes is a [Tokenizer] with one token per byte of UTF-8, for tiny models that read any text. Its ids are the bytes, then
// the marks.
type Bytes struct{}

// byteCount is the number of bytes, and the id of the first mark.
const byteCount = 256

// Vocab is the number of ids, marks included.
func (Bytes) Vocab() int { return byteCount + int(markCount) }

// Mark returns the id of a mark.
func (Bytes) Mark(m Mark) int32 { return byteCount + int32(m) }

// Encode implements [Tokenizer]. It encodes every text.
func (Bytes) Encode(text string) ([]int32, error) {
	ids := make([]int32, len(text))
	for i := range len(text) {
		ids[i] = int32(text[i])
	}
	return ids, nil
}

// encodeWithMarks reads the characters of marks as marks, and U+FFFD as its own bytes. That is wrong for a model that wrote a
// mark in bytes, or bytes that are no character: such replies must be remembered.
func (b Bytes) encodeWithMarks(text string) ([]int32, error) {
	ids := make([]int32, 0, len(text))
	for _, r := range text {
		if m := strings.IndexRune(markRunes, r); m >= 0 {
			ids = append(ids, b.Mark(Mark(len([]rune(markRunes[:m])))))
			continue
		}
		for _, c := range []byte(string(r)) {
			ids = append(ids, int32(c))
		}
	}
	return ids, nil
}

// Decode implements [Tokenizer]. Each mark decodes to a character of its own; unknown ids, and bytes that are no character,
// to U+FFFD each.
func (Bytes) Decode(ids []int32) string {
	marks := []rune(markRunes)
	var b []byte
	for _, id := range ids {
		switch {
		case id >= 0 && id < byteCount:
			b = append(b, byte(id))
		case id >= byteCount && id < byteCount+int32(markCount):
			b = append(b, string(marks[id-byteCount])...)
		default:
			b = append(b, 0xff)
		}
	}
	return string([]rune(string(b)))
}

// TokenBytes implements [Speller].
func (b Bytes) TokenBytes(id int32) []byte {
	if id >= 0 && id < byteCount {
		return []byte{byte(id)}
	}
	return []byte(b.Decode([]int32{id}))
}
