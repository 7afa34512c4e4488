package chat

import "strings"

// Bytes is a [Tokenizer] with one token per byte of UTF-8, for tiny models that are to read any text. The ids are
// the bytes, then the marks. It has no state.
type Bytes struct{}

// byteCount is the number of bytes, and the id of the first mark.
const byteCount = 256

// Vocab is the number of ids, marks included.
func (Bytes) Vocab() int { return byteCount + int(markCount) }

// Mark returns the id of a mark.
func (Bytes) Mark(m Mark) int32 { return byteCount + int32(m) }

// Encode implements [Tokenizer]. It spells every text.
func (Bytes) Encode(text string) ([]int32, error) {
	ids := make([]int32, len(text))
	for i := range len(text) {
		ids[i] = int32(text[i])
	}
	return ids, nil
}

// encodeWithMarks takes the marks' own characters for marks, and U+FFFD for its own bytes: a model that spelt a mark
// in bytes, or wrote bytes that are no character, is misread unless its reply is remembered.
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

// Decode implements [Tokenizer]. Marks decode to a character of their own each, unknown ids and bytes that are no
// character to U+FFFD each.
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
