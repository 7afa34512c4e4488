package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Tokenizer turns text into ids and back. It is safe for concurrent use. It implements chat.Tokenizer.
type Tokenizer struct {
	tokens []string // of every id, as text; "" where there is none
	ids    map[string]int32
	merges *merges
	bytes  [256]int32 // the tokens of single bytes

	byteLevel    bool // tokens are bytes; else characters, with bytes to fall back on
	ignoreMerges bool // a word that is a token is that token, whatever the merges make of it

	normalize []func(text string) string
	replaced  []string // what the normalizer leaves nothing of
	splits    []splitter
	// cuts says that text may be cut before the mark of a blank, but behind the characters that glued holds:
	// no token has the mark behind any other character, so no merge reaches over the cut.
	cuts  bool
	glued string

	addedRaw, addedNormal addedSet
	added, special        map[int32]bool
	prefix, suffix        []int32 // what the post-processor puts around a text

	spaceMark string // decodes to a blank

	classes *[utf8.MaxRune + 1]charClass
	cache   []atomic.Pointer[cached]
	seed    maphash.Seed
	rooms   sync.Pool // of *room
}

// cached is a word that was encoded before. It does not change.
type cached struct {
	text string
	ids  []int32
}

const (
	cacheSlots = 1 << 16
	// cacheWord is how long a word may be to be remembered, in bytes.
	cacheWord = 48
)

// room is what encoding a text needs besides the result.
type room struct {
	word word
	ids  []int32
}

// Options say what [Tokenizer.Append] does with a text besides encoding it.
type Options struct {
	// Added turns the texts of added tokens, special ones too, into these tokens. A rendered conversation
	// needs it; text from outside must not have it, or it could forge the marks of a conversation.
	Added bool
	// Wrap puts the post-processor's special tokens around the text, such as the mark of its beginning.
	Wrap bool
}

// finish prepares what encoding needs.
func (t *Tokenizer) finish(*file) error {
	t.classes = classTable()
	t.cache = make([]atomic.Pointer[cached], cacheSlots)
	t.seed = maphash.MakeSeed()
	t.rooms.New = func() any { return new(room) }
	if t.byteLevel || len(t.splits) > 0 {
		return nil
	}
	for _, token := range t.tokens {
		for i := skipMarks(token, t.spaceMark); ; {
			next := strings.Index(token[i:], t.spaceMark)
			if next < 0 {
				break
			}
			before, _ := utf8.DecodeLastRuneInString(token[:i+next])
			if !strings.ContainsRune(t.glued, before) {
				t.glued += string(before)
			}
			i += next + skipMarks(token[i+next:], t.spaceMark)
		}
	}
	// Where many characters are glued, looking for a place to cut costs more than it saves.
	t.cuts = len(t.glued) <= 16
	return nil
}

// Vocab is the number of ids, from 0 on; some of them may have no token.
func (t *Tokenizer) Vocab() int { return len(t.tokens) }

// ID is the id of a token, given as the text that it decodes to; for models with byte fallback as the file
// writes it.
func (t *Tokenizer) ID(token string) (id int32, ok bool) {
	id, ok = t.ids[token]
	return id, ok
}

// Added reports whether an id is an added token: a mark that text is searched for.
func (t *Tokenizer) Added(id int32) bool { return t.added[id] }

// Special reports whether an id is a special token, which decoding may skip.
func (t *Tokenizer) Special(id int32) bool { return t.special[id] }

// Encode returns the ids of text alone: added tokens in it are text like any other. There is always an
// encoding, so the error is nil.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	return t.Append(make([]int32, 0, len(text)/3+4), text, Options{}), nil
}

// Append appends the ids of text. Bytes that are not UTF-8 are encoded as U+FFFD.
func (t *Tokenizer) Append(dst []int32, text string, o Options) []int32 {
	text = strings.ToValidUTF8(text, "\ufffd")
	r := t.rooms.Get().(*room)
	defer t.rooms.Put(r)
	if o.Wrap {
		dst = append(dst, t.prefix...)
	}
	at := 0
	for o.Added {
		begin, end, token := t.addedRaw.find(text, at)
		if token == nil {
			break
		}
		dst = t.appendPlain(dst, text[at:begin], o, r)
		dst = append(dst, token.id)
		at = end
	}
	dst = t.appendPlain(dst, text[at:], o, r)
	if o.Wrap {
		dst = append(dst, t.suffix...)
	}
	return dst
}

func (t *Tokenizer) normal(text string) string {
	for _, f := range t.normalize {
		text = f(text)
	}
	return text
}

// appendPlain encodes text between the added tokens that are searched before normalizing.
func (t *Tokenizer) appendPlain(dst []int32, text string, o Options, r *room) []int32 {
	if text == "" {
		return dst
	}
	text = t.normal(text)
	at := 0
	for o.Added {
		begin, end, token := t.addedNormal.find(text, at)
		if token == nil {
			break
		}
		dst = t.appendSplit(dst, text[at:begin], 0, r)
		dst = append(dst, token.id)
		at = end
	}
	return t.appendSplit(dst, text[at:], 0, r)
}

// appendSplit cuts text by the split at a level, and its pieces by the next ones.
func (t *Tokenizer) appendSplit(dst []int32, text string, level int, r *room) []int32 {
	if level == len(t.splits) {
		return t.appendPiece(dst, text, r)
	}
	split := t.splits[level]
	last := level == len(t.splits)-1
	for text != "" {
		n := split(t.classes, text)
		if last {
			dst = t.appendWord(dst, text[:n], r)
		} else {
			dst = t.appendSplit(dst, text[:n], level+1, r)
		}
		text = text[n:]
	}
	return dst
}

// appendPiece encodes text that no split cuts: in one word, or cut where no merge reaches over.
func (t *Tokenizer) appendPiece(dst []int32, text string, r *room) []int32 {
	if text == "" {
		return dst
	}
	for i := skipMarks(text, t.spaceMark); t.cuts; {
		next := strings.Index(text[i:], t.spaceMark)
		if next < 0 {
			break
		}
		i += next
		if before, _ := utf8.DecodeLastRuneInString(text[:i]); !strings.ContainsRune(t.glued, before) {
			dst = t.appendWord(dst, text[:i], r)
			text, i = text[i:], 0
		}
		i += skipMarks(text[i:], t.spaceMark)
	}
	return t.appendWord(dst, text, r)
}

// skipMarks is the length of the marks at the start of text.
func skipMarks(text, mark string) int {
	i := 0
	for strings.HasPrefix(text[i:], mark) {
		i += len(mark)
	}
	return i
}

// appendWord encodes a word, by memory if it was seen before.
func (t *Tokenizer) appendWord(dst []int32, text string, r *room) []int32 {
	if len(text) == 1 && t.byteLevel {
		return append(dst, t.bytes[text[0]])
	}
	if len(text) > cacheWord {
		return append(dst, t.encodeWord(text, r)...)
	}
	slot := &t.cache[maphash.String(t.seed, text)%cacheSlots]
	if c := slot.Load(); c != nil && c.text == text {
		return append(dst, c.ids...)
	}
	ids := t.encodeWord(text, r)
	slot.Store(&cached{strings.Clone(text), append(make([]int32, 0, len(ids)), ids...)})
	return append(dst, ids...)
}

// encodeWord encodes a word into the room's ids.
func (t *Tokenizer) encodeWord(text string, r *room) []int32 {
	if t.ignoreMerges {
		if id, ok := t.ids[text]; ok && !t.added[id] {
			r.ids = append(r.ids[:0], id)
			return r.ids
		}
	}
	r.ids = r.ids[:0]
	if t.byteLevel {
		for i := range len(text) {
			r.ids = append(r.ids, t.bytes[text[i]])
		}
		return t.merges.merge(r.ids, &r.word)
	}
	for i := 0; i < len(text); {
		_, n := at(text[i:])
		if id, ok := t.ids[text[i:i+n]]; ok {
			r.ids = append(r.ids, id)
		} else {
			for j := i; j < i+n; j++ {
				r.ids = append(r.ids, t.bytes[text[j]])
			}
		}
		i += n
	}
	return t.merges.merge(r.ids, &r.word)
}
