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
	special                    bool
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

// find returns the first token in text[from:], and where it begins and ends, with the white space that it strips. from is
// the end of the token before.
func (s *addedSet) find(text string, from int) (begin, end int, t addedToken, found bool) {
	if len(s.tokens) == 0 {
		return 0, 0, t, false
	}
	for i := from; i < len(text); i++ {
		lengths := s.lengths[text[i]]
		if lengths == nil {
			continue
		}
		stop := i
		for _, n := range lengths {
			if i+n <= len(text) {
				if t, found = s.tokens[text[i:i+n]]; found {
					stop += n
					break
				}
			}
		}
		if stop == i {
			continue
		}
		if t.singleWord && (wordEnds(text[:i]) || wordBegins(text[stop:])) {
			i = stop - 1
			continue
		}
		begin, end = i, stop
		if t.lstrip {
			begin = from + len(strings.TrimRightFunc(text[from:begin], unicode.IsSpace))
		}
		if t.rstrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		return begin, end, t, true
	}
	return 0, 0, t, false
}

func isWord(c rune) bool {
	return c == '_' || unicode.IsLetter(c) || unicode.IsMark(c) || unicode.IsDigit(c)
}

func wordEnds(text string) bool {
	c, n := utf8.DecodeLastRuneInString(text)
	return n > 0 && isWord(c)
}

func wordBegins(text string) bool {
	c, n := utf8.DecodeRuneInString(text)
	return n > 0 && isWord(c)
}
