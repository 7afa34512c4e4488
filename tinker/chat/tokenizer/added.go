package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is found in text before anything else is done with it.
type addedToken struct {
	id                         int32
	special                    bool
	lstrip, rstrip, singleWord bool
}

// addedSet finds added tokens: at every place the longest one, from the left.
type addedSet struct {
	begins [256]bool
	nodes  []trieNode
	tokens []addedToken
}

type trieNode struct {
	bytes []byte
	next  []int32
	token int32 // in addedSet.tokens, -1 if none ends here
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

// find is the first token in text[from:], where it begins and ends, white space that it takes included; from
// is the end of the token before.
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
			for begin > from {
				c, n := utf8.DecodeLastRuneInString(text[from:begin])
				if !unicode.IsSpace(c) {
					break
				}
				begin -= n
			}
		}
		if t.rstrip {
			for end < len(text) {
				c, n := utf8.DecodeRuneInString(text[end:])
				if !unicode.IsSpace(c) {
					break
				}
				end += n
			}
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
