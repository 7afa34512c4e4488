package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Tokenizer turns text into ids and back. It is safe for concurrent use, and a chat.Tokenizer and chat.Speller.
type Tokenizer struct {
	tokens []string // the text of each id; "" where there is no token
	ids    map[string]int32
	merges *merges
	bytes  [256]int32 // the tokens of single bytes

	byteLevel    bool // tokens are bytes; else characters, with bytes to fall back on
	ignoreMerges bool // a word that is a token stays that token, whatever the merges say

	normalize []func(text string) string
	replaced  []string // texts that the normalizer replaces everywhere
	splits    []splitter
	// splitsAtBlanks is true when text may be divided before the mark of a blank, except after a character in glued: no token
	// has the mark after any other character, so that no merge crosses the border.
	splitsAtBlanks bool
	glued          string

	addedRaw, addedNormal addedSet
	added                 map[int32]bool // whether an added token is special

	spaceMark string // stands for a blank; empty where a blank is itself

	classes *charClasses
	cache   []atomic.Pointer[cached]
	seed    maphash.Seed
	scratch sync.Pool // of *scratch
}

// cached is a word that was encoded before. It is immutable.
type cached struct {
	text string
	ids  []int32
}

const (
	cacheSlots = 1 << 16
	// cacheWord is the length of the longest word that is cached, in bytes.
	cacheWord = 48
)

// scratch is the memory that encoding a text needs besides the result.
type scratch struct {
	merge mergeBuffer
	ids   []int32
}

// Options say what [Tokenizer.Append] does besides encoding a text.
type Options struct {
	// Added turns the texts of added tokens, special ones included, into these tokens. A rendered conversation needs it. Text
	// from outside must not have it, or it could forge the marks of a conversation.
	Added bool
}

// finish prepares what encoding needs.
func (t *Tokenizer) finish(*file) error {
	t.classes = classTable()
	t.cache = make([]atomic.Pointer[cached], cacheSlots)
	t.seed = maphash.MakeSeed()
	t.scratch.New = func() any { return new(scratch) }
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
	// Where many characters are glued, looking for a border costs more than it saves.
	t.splitsAtBlanks = len(t.glued) <= 16
	return nil
}

// Vocab is the number of ids, from 0; some of them may have no token.
func (t *Tokenizer) Vocab() int { return len(t.tokens) }

// ID returns the id of a token, given as the text to which it decodes; for models with byte fallback, as the file has it.
func (t *Tokenizer) ID(token string) (id int32, ok bool) {
	id, ok = t.ids[token]
	return id, ok
}

// Added reports whether an id is an added token.
func (t *Tokenizer) Added(id int32) bool {
	_, ok := t.added[id]
	return ok
}

// Special reports whether an id is a special token, such as the marks of a conversation.
func (t *Tokenizer) Special(id int32) bool { return t.added[id] }

// Encode returns the ids of text. The texts of added tokens in it are text like any other. The error is always nil.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	return t.Append(make([]int32, 0, len(text)/3+4), text, Options{}), nil
}

// Append appends the ids of text. Bytes that are not UTF-8 are encoded as U+FFFD.
func (t *Tokenizer) Append(dst []int32, text string, o Options) []int32 {
	text = strings.ToValidUTF8(text, "\ufffd")
	r := t.scratch.Get().(*scratch)
	defer t.scratch.Put(r)
	if o.Added {
		t.addedRaw.each(text, func(text string) { dst = t.appendPlain(dst, text, o, r) }, func(id int32) { dst = append(dst, id) })
	} else {
		dst = t.appendPlain(dst, text, o, r)
	}
	return dst
}

func (t *Tokenizer) normalized(text string) string {
	for _, f := range t.normalize {
		text = f(text)
	}
	return text
}

// appendPlain encodes text between the added tokens that are searched before normalization.
func (t *Tokenizer) appendPlain(dst []int32, text string, o Options, r *scratch) []int32 {
	if text == "" {
		return dst
	}
	text = t.normalized(text)
	if !o.Added {
		return t.appendSplit(dst, text, 0, r)
	}
	t.addedNormal.each(text, func(text string) { dst = t.appendSplit(dst, text, 0, r) }, func(id int32) { dst = append(dst, id) })
	return dst
}

// appendSplit divides text by the split of a level, and the pieces by the next levels.
func (t *Tokenizer) appendSplit(dst []int32, text string, level int, r *scratch) []int32 {
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

// appendPiece encodes text that no split divides further: as one word, or divided where no merge crosses the border.
func (t *Tokenizer) appendPiece(dst []int32, text string, r *scratch) []int32 {
	if text == "" {
		return dst
	}
	if !t.splitsAtBlanks {
		return t.appendWord(dst, text, r)
	}
	for i := skipMarks(text, t.spaceMark); ; {
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

// skipMarks returns the length of the marks at the start of text.
func skipMarks(text, mark string) int {
	i := 0
	for strings.HasPrefix(text[i:], mark) {
		i += len(mark)
	}
	return i
}

// appendWord encodes a word, from the cache if it is there.
func (t *Tokenizer) appendWord(dst []int32, text string, r *scratch) []int32 {
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

// encodeWord encodes a word into the ids of r.
func (t *Tokenizer) encodeWord(text string, r *scratch) []int32 {
	if t.ignoreMerges {
		if id, ok := t.ids[text]; ok && !t.Added(id) {
			r.ids = append(r.ids[:0], id)
			return r.ids
		}
	}
	r.ids = r.ids[:0]
	if t.byteLevel {
		for i := range len(text) {
			r.ids = append(r.ids, t.bytes[text[i]])
		}
		return t.merges.merge(r.ids, &r.merge)
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
	return t.merges.merge(r.ids, &r.merge)
}
