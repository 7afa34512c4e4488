package tokenizer

import (
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

// addedSet is a trie of added tokens. It finds them from the left, at each place the longest one.
type addedSet struct {
	begins [256]bool // the first bytes of tokens
	nodes  []trieNode
	tokens []addedToken
}

type trieNode struct {
	bytes []byte
	next  []int32
	token int32 // its index in addedSet.tokens; -1 if no token ends here
}

func (s *addedSet) add(text string, t addedToken) {
	if text == "" {
		return
	}
	if s.nodes == nil {
		s.nodes = []trieNode{{token: -1}}
	}
	s.begins[text[0]] = true
	node := int32(0)
	for i := range len(text) {
		next := s.nodes[node].child(text[i])
		if next < 0 {
			next = int32(len(s.nodes))
			s.nodes = append(s.nodes, trieNode{token: -1})
			s.nodes[node].bytes = append(s.nodes[node].bytes, text[i])
			s.nodes[node].next = append(s.nodes[node].next, next)
		}
		node = next
	}
	s.nodes[node].token = int32(len(s.tokens))
	s.tokens = append(s.tokens, t)
}

func (n *trieNode) child(c byte) int32 {
	for i, b := range n.bytes {
		if b == c {
			return n.next[i]
		}
	}
	return -1
}

// find returns the first token in text[from:], and where it begins and ends, with the white space that it strips. from is
// the end of the token before.
func (s *addedSet) find(text string, from int) (begin, end int, t *addedToken) {
	if len(s.tokens) == 0 {
		return 0, 0, nil
	}
	for i := from; i < len(text); i++ {
		if !s.begins[text[i]] {
			continue
		}
		node, stop, found := int32(0), 0, int32(-1)
		for j := i; j < len(text); j++ {
			if node = s.nodes[node].child(text[j]); node < 0 {
				break
			}
			if s.nodes[node].token >= 0 {
				stop, found = j+1, s.nodes[node].token
			}
		}
		if found < 0 {
			continue
		}
		t := &s.tokens[found]
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
		return begin, end, t
	}
	return 0, 0, nil
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
