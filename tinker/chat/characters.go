package chat

import (
	"strings"
	"unicode/utf8"

	"github.com/agl-go/agl"
)

// Tokenizer maps text to token ids and back.
type Tokenizer interface {
	// Encode returns the ids of text. Whatever the text, it returns no ids of special tokens (role marks, end of reply).
	// Text that the vocabulary cannot spell is agl.ErrInvalid.
	Encode(text string) ([]int32, error)
	// Decode returns the text of ids. An incomplete character is U+FFFD. The text of a concatenation is the concatenation of
	// the texts, except where a character spans tokens of both.
	Decode(ids []int32) string
}

// Speller is a [Tokenizer] that knows the bytes of a token, even if they are only a part of a character.
type Speller interface {
	// TokenBytes returns the bytes of an id. The bytes of all ids of a text are the text.
	TokenBytes(id int32) []byte
}

// Mark is a special token of [Characters] and [Bytes] that separates messages.
type Mark int

// The marks, in the order of their ids.
const (
	// MarkUser, MarkAssistant and MarkTool begin a message of their role.
	MarkUser Mark = iota
	MarkAssistant
	MarkTool
	// MarkEnd ends a reply.
	MarkEnd

	markCount
)

// markRunes are the characters to which marks decode. No alphabet contains them.
const markRunes = "▲▼◆■"

// DefaultAlphabet has 44 characters, enough for small arithmetic and lower-case phrases; with the marks it makes a
// vocabulary of 48.
const DefaultAlphabet = " 0123456789abcdefghijklmnopqrstuvwxyz+-*/=?."

// Characters is a [Tokenizer] with one token per character, for tiny models. Its ids are the characters of the alphabet in
// order, then the marks.
type Characters struct {
	runes []rune // of every id
	ids   map[rune]int32
	chars int // ids below it are characters
}

// NewCharacters makes a tokenizer for an alphabet of distinct characters; empty means [DefaultAlphabet]. A character that
// occurs twice, or that a mark decodes to, is agl.ErrInvalid.
func NewCharacters(alphabet string) (*Characters, error) {
	if alphabet == "" {
		alphabet = DefaultAlphabet
	}
	c := &Characters{ids: map[rune]int32{}}
	for _, r := range alphabet + markRunes {
		if _, ok := c.ids[r]; ok {
			return nil, agl.Errorf(agl.CodeInvalid, "alphabet: %q occurs twice (or is one of the marks %s)", r, markRunes)
		}
		c.ids[r] = int32(len(c.runes))
		c.runes = append(c.runes, r)
	}
	c.chars = len(c.runes) - int(markCount)
	return c, nil
}

// Vocab is the number of ids, marks included.
func (c *Characters) Vocab() int { return len(c.runes) }

// Mark returns the id of a mark.
func (c *Characters) Mark(m Mark) int32 { return int32(c.chars) + int32(m) }

// Encode implements [Tokenizer].
func (c *Characters) Encode(text string) ([]int32, error) {
	return c.encode(text, c.chars)
}

func (c *Characters) encodeWithMarks(text string) ([]int32, error) {
	return c.encode(text, len(c.runes))
}

func (c *Characters) encode(text string, limit int) ([]int32, error) {
	out := make([]int32, 0, utf8.RuneCountInString(text))
	for i, r := range text {
		id, ok := c.ids[r]
		if !ok || int(id) >= limit {
			return nil, agl.Errorf(agl.CodeInvalid, "character %q at byte %d is not in the model's vocabulary %q", r, i, string(c.runes[:c.chars]))
		}
		out = append(out, id)
	}
	return out, nil
}

// Decode implements [Tokenizer]. Each mark decodes to a character of its own, unknown ids to U+FFFD.
func (c *Characters) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id < 0 || int(id) >= len(c.runes) {
			b.WriteRune(utf8.RuneError)
			continue
		}
		b.WriteRune(c.runes[id])
	}
	return b.String()
}
