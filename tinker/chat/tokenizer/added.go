package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is searched in text before anything else is done with it.
type addedToken struct {
	id                         int32
	lstrip, rstrip, singleWord bool // as in tokenizer.json
}

// addedSet finds added tokens from the left, at each place the longest one.
type addedSet struct {
	tokens  map[string]addedToken
	lengths [256][]int // of the tokens that begin with a byte, the longest first
}

func (s *addedSet) add(text string, t addedToken) {
	if text == "" {
		return
	}
	if s.tokens == nil {
		s.tokens = map[string]addedToken{}
	}
	s.tokens[text] = t
	lengths := &s.lengths[text[0]]
	*lengths = append(*lengths, len(text))
	slices.SortFunc(*lengths, func(a, b int) int { return b - a })
	*lengths = slices.Compact(*lengths)
}

// each passes the text between the tokens, and the tokens, in order. A token strips white space from the text, but not
// from a token in it that follows.
func (s *addedSet) each(text string, plain func(text string), added func(id int32)) {
	at := 0 // the end of the token before, with the white space that it strips
	for i := 0; i < len(text) && len(s.tokens) > 0; {
		t, length := s.longest(text[i:])
		if length == 0 {
			i++
			continue
		}
		begin, stop := i, i+length
		i = stop
		if t.singleWord && (wordEnds(text[:begin]) || wordBegins(text[stop:])) {
			continue
		}
		if t.lstrip {
			begin = len(strings.TrimRightFunc(text[:begin], unicode.IsSpace))
		}
		if t.rstrip {
			stop = len(text) - len(strings.TrimLeftFunc(text[stop:], unicode.IsSpace))
		}
		if at < begin {
			plain(text[at:begin])
		}
		added(t.id)
		at = stop
	}
	plain(text[at:])
}

// longest returns the longest token that text begins with, and its length in bytes, 0 if there is none.
func (s *addedSet) longest(text string) (t addedToken, length int) {
	for _, n := range s.lengths[text[0]] {
		if n <= len(text) {
			if t, found := s.tokens[text[:n]]; found {
				return t, n
			}
		}
	}
	return t, 0
}

// isWord reports what \w matches in the expressions of Rust (Unicode Technical Standard #18, Annex C).
func isWord(c rune) bool {
	const joiners = "\u200c\u200d"
	return unicode.IsLetter(c) || unicode.IsMark(c) || unicode.In(c, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic) || strings.ContainsRune(joiners, c)
}

func wordEnds(text string) bool {
	c, n := utf8.DecodeLastRuneInString(text)
	return n > 0 && isWord(c)
}

func wordBegins(text string) bool {
	c, n := utf8.DecodeRuneInString(text)
	return n > 0 && isWord(c)
}
