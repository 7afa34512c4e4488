package adapter

import (
	"bytes"
	"slices"

	"github.com/agl-go/agl/internal/rawjson"
)

// sharedIDs holds the token ids of prompts that continue one another. Each prompt is a slice from the first id on, so
// together they take the memory of the longest, and each id is parsed once.
type sharedIDs struct{ ids []int32 }

// grow returns the first n ids with room for more, which the caller appends. It copies them if another prompt has
// different ids after the first n.
func (s *sharedIDs) grow(n, more int) *sharedIDs {
	switch {
	case n < len(s.ids):
		return &sharedIDs{append(make([]int32, 0, n+more), s.ids[:n]...)}
	case n+more > cap(s.ids):
		s.ids = append(make([]int32, 0, max(n+more, 2*n)), s.ids...)
	}
	return s
}

// prompt returns all ids, in a slice without spare capacity.
func (s *sharedIDs) prompt() []int32 { return slices.Clip(s.ids) }

// promptReader reads lists of token ids, many of which begin with an earlier list.
type promptReader struct {
	recent [recentPrompts]readPrompt
	next   int // of recent, to be replaced
}

// recentPrompts is the number of earlier prompts that a new one is compared with, so that conversations that run side
// by side each find their own.
const recentPrompts = 8

type readPrompt struct {
	list []byte // the text of the ids, without brackets
	ids  *sharedIDs
	n    int // the number of ids in list
}

func (p *readPrompt) prompt() []int32 { return p.ids.ids[:p.n:p.n] }

// tokenIDs is the function tokenIDs, except that the ids may share memory with those of earlier calls.
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
			// The lists may share some digits of the element in which they differ.
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

// base returns the prompt that shares the longest prefix with list, and the length of the prefix in bytes. A prefix
// of less than half of the list does not count.
func (r *promptReader) base(list []byte) (base *readPrompt, same int) {
	for i := range r.recent {
		p := &r.recent[i]
		if p.ids == nil {
			continue
		}
		n := rawjson.CommonPrefix(p.list, list)
		if n == len(p.list) && n < len(list) && list[n] != ',' { // the last id has more digits in list
			n--
		}
		if n > same && n >= len(list)/2 {
			base, same = p, n
		}
	}
	return base, same
}

// remember stores a prompt in place of its base if the prompt continues it, and otherwise in place of the oldest
// prompt.
func (r *promptReader) remember(base *readPrompt, same int, p readPrompt) {
	if base != nil && same == len(base.list) {
		*base = p
		return
	}
	r.recent[r.next] = p
	r.next = (r.next + 1) % recentPrompts
}

// commonPrefix returns the number of tokens that a and b have in common at their beginning. Slices of the same array
// are not compared.
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

// prefixHashes caches the hashes of all prefixes of recent prompts.
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
