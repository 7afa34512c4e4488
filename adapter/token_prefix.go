package adapter

import (
	"bytes"
	"slices"
)

// sharedIDs are the token ids of prompts that continue one another. Each prompt is a slice from the first id, so that they
// take the memory of the longest and are parsed once.
type sharedIDs struct{ ids []int32 }

// grow returns the first n ids and room for more, which the caller appends. What another prompt has after the first n stays.
func (s *sharedIDs) grow(n, more int) *sharedIDs {
	switch {
	case n < len(s.ids):
		return &sharedIDs{append(make([]int32, 0, n+more), s.ids[:n]...)}
	case n+more > cap(s.ids):
		s.ids = append(make([]int32, 0, max(n+more, 2*n)), s.ids...)
	}
	return s
}

// prompt returns all ids as a slice that nobody can append to in place.
func (s *sharedIDs) prompt() []int32 { return slices.Clip(s.ids) }

// promptReader reads lists of token ids, of which many begin with an earlier one.
type promptReader struct {
	recent [recentPrompts]readPrompt
	next   int // of recent, to be replaced
}

// recentPrompts is how many prompts later ones are compared with. Conversations that run beside each other continue their own.
const recentPrompts = 8

type readPrompt struct {
	list []byte // the ids as they are spelled, without brackets
	ids  *sharedIDs
	n    int // how many of ids are in list
}

func (p *readPrompt) prompt() []int32 { return p.ids.ids[:p.n:p.n] }

// tokenIDs is the function tokenIDs, but the ids may share their memory with those of earlier calls.
func (r *promptReader) tokenIDs(raw []byte) ([]int32, bool) {
	p, ok := r.read(raw)
	if !ok {
		return nil, false
	}
	return p.prompt(), true
}

func (r *promptReader) read(raw []byte) (readPrompt, bool) {
	list, ok := listText(raw)
	if !ok {
		return readPrompt{}, false
	}
	if len(list) == 0 {
		return readPrompt{ids: &sharedIDs{ids: []int32{}}}, true
	}
	base, same := r.base(list)
	shared, from := &sharedIDs{}, 0
	if base != nil {
		n := base.n
		if from = same + 1; same < len(base.list) {
			// Of the element in which they differ, both may have some digits.
			from = bytes.LastIndexByte(list[:same], ',') + 1
			n = bytes.Count(list[:from], comma())
		}
		if from > len(list) { // the same list
			return readPrompt{list, base.ids, n}, true
		}
		shared = base.ids.grow(n, 1+bytes.Count(list[from:], comma()))
	} else {
		shared = shared.grow(0, 1+bytes.Count(list, comma()))
	}
	ids, ok := appendTokenIDs(shared.ids, list[from:])
	if !ok {
		return readPrompt{}, false
	}
	shared.ids = ids
	p := readPrompt{list, shared, len(ids)}
	r.remember(base, same, p)
	return p, true
}

// base returns the prompt that shares the longest beginning with a list, and how many bytes these are. A prompt that shares
// less than half is none.
func (r *promptReader) base(list []byte) (base *readPrompt, same int) {
	for i := range r.recent {
		p := &r.recent[i]
		if p.ids == nil {
			continue
		}
		n := commonBytes(p.list, list)
		if n == len(p.list) && n < len(list) && list[n] != ',' { // the last id goes on
			n--
		}
		if n > same && n >= len(list)/2 {
			base, same = p, n
		}
	}
	return base, same
}

// remember replaces the base if the prompt goes on with it, and otherwise the oldest.
func (r *promptReader) remember(base *readPrompt, same int, p readPrompt) {
	if base != nil && same == len(base.list) {
		*base = p
		return
	}
	r.recent[r.next] = p
	r.next = (r.next + 1) % recentPrompts
}

// commonBytes returns how many bytes a and b have in common at the beginning.
func commonBytes(a, b []byte) int {
	n := min(len(a), len(b))
	same := 0
	for same < n {
		const block = 1 << 10
		end := min(same+block, n)
		if bytes.Equal(a[same:end], b[same:end]) {
			same = end
			continue
		}
		for a[same] == b[same] {
			same++
		}
		break
	}
	return same
}

// commonPrefix returns how many tokens a and b have in common at the beginning. Slices of one array are not compared.
func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	if n > 0 && &a[0] == &b[0] {
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// tokenPrefix is the length of a sequence of tokens and a hash of it.
type tokenPrefix struct {
	length int
	hash   uint64
}

// FNV-1a over tokens instead of bytes (Fowler, Noll, Vo). Tokens are compared, too, so a collision costs only time.
const (
	hashSeed  = 14695981039346656037
	hashPrime = 1099511628211
)

func hashToken(hash uint64, id int32) uint64 { return (hash ^ uint64(uint32(id))) * hashPrime }

func (p *tokenPrefix) add(id int32) {
	p.length++
	p.hash = hashToken(p.hash, id)
}

// prefixHashes has the hashes of all beginnings of the latest prompts.
type prefixHashes struct {
	recent [recentPrompts]promptHashes
	next   int // of recent, to be replaced
}

type promptHashes struct {
	ids    []int32
	hashes []uint64 // of the first 1, 2, … ids
}

// of returns the hashes of the first 1, 2, … tokens of a prompt that is not empty.
func (h *prefixHashes) of(prompt []int32) []uint64 {
	var p *promptHashes
	for i := range h.recent {
		if known := h.recent[i].ids; len(known) > 0 && &known[0] == &prompt[0] {
			p = &h.recent[i]
		}
	}
	if p == nil {
		p = &h.recent[h.next]
		h.next = (h.next + 1) % recentPrompts
		p.hashes = p.hashes[:0]
	}
	p.ids = prompt
	if len(prompt) > cap(p.hashes) {
		p.hashes = slices.Grow(p.hashes, 2*len(prompt)-len(p.hashes))
	}
	hash := uint64(hashSeed)
	if known := len(p.hashes); known > 0 {
		hash = p.hashes[known-1]
	}
	for _, id := range prompt[min(len(p.hashes), len(prompt)):] {
		hash = hashToken(hash, id)
		p.hashes = append(p.hashes, hash)
	}
	return p.hashes[:len(prompt)]
}
