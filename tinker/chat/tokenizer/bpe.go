package tokenizer

import "math"

// merges says which pairs of tokens are merged, into what, and in which order. It is a hash table with open addressing,
// because encoding spends its time on looking up pairs.
type merges struct {
	slots []mergeSlot
	shift uint
}

type mergeSlot struct {
	pair uint64 // left<<32 | right
	rank int32
	into int32 // -1 in an empty slot
}

func newMerges(n int) *merges {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	m := &merges{slots: make([]mergeSlot, 1<<bits), shift: 64 - bits}
	for i := range m.slots {
		m.slots[i].into = -1
	}
	return m
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// find returns the slot of a pair, or the empty one for it.
func (m *merges) find(pair uint64) *mergeSlot {
	mask := uint64(len(m.slots) - 1)
	for i := pair * 0x9e3779b97f4a7c15 >> m.shift; ; i++ {
		if s := &m.slots[i&mask]; s.pair == pair || s.into < 0 {
			return s
		}
	}
}

func (m *merges) put(left, right, rank, into int32) {
	*m.find(pairKey(left, right)) = mergeSlot{pairKey(left, right), rank, into}
}

// rank returns the rank of a pair and what it is merged into; the rank is noMerge if it never is.
func (m *merges) rank(left, right int32) (rank, into int32) {
	if s := m.find(pairKey(left, right)); s.into >= 0 {
		return s.rank, s.into
	}
	return noMerge, 0
}

const noMerge = math.MaxInt32

// mergeBuffer is the memory in which a word is merged. Its symbols form a linked list, because merging removes them from the
// middle.
type mergeBuffer struct {
	symbols []mergeSymbol
	heap    []candidate
}

type mergeSymbol struct {
	id         int32
	prev, next int32 // indexes in symbols, -1 at the ends; a symbol that is merged into another has id -1
	rank, into int32 // of the pair with the next symbol
}

// candidate is a pair in the heap of a long word.
type candidate struct {
	rank, at, into int32
}

// shortWord is up to how many symbols a word is merged by looking at all pairs again and again, which is quadratic and yet
// faster than a heap.
const shortWord = 40

// merge merges ids in place until no pair is left to merge, and returns the rest.
func (m *merges) merge(ids []int32, w *mergeBuffer) []int32 {
	if len(ids) < 2 {
		return ids
	}
	if len(ids) > shortWord {
		return m.mergeLong(ids, w)
	}
	if cap(w.symbols) < len(ids) {
		w.symbols = make([]mergeSymbol, shortWord)
	}
	pairs := w.symbols[:len(ids)]
	for i := range len(ids) - 1 {
		pairs[i].rank, pairs[i].into = m.rank(ids[i], ids[i+1])
	}
	n := len(ids)
	for {
		best, at := int32(noMerge), -1
		for i, p := range pairs[:n-1] {
			if p.rank < best {
				best, at = p.rank, i
			}
		}
		if at < 0 {
			return ids[:n]
		}
		ids[at] = pairs[at].into
		copy(ids[at+1:], ids[at+2:n])
		copy(pairs[at:], pairs[at+1:n])
		n--
		if at > 0 {
			pairs[at-1].rank, pairs[at-1].into = m.rank(ids[at-1], ids[at])
		}
		if at < n-1 {
			pairs[at].rank, pairs[at].into = m.rank(ids[at], ids[at+1])
		}
	}
}

// mergeLong merges with a heap of candidates. It skips a candidate whose pair has changed.
func (m *merges) mergeLong(ids []int32, w *mergeBuffer) []int32 {
	w.symbols, w.heap = w.symbols[:0], w.heap[:0]
	for i, id := range ids {
		w.symbols = append(w.symbols, mergeSymbol{id: id, prev: int32(i) - 1, next: int32(i) + 1})
	}
	w.symbols[len(ids)-1].next = -1
	for i := range w.symbols {
		m.offer(w, int32(i))
	}
	for len(w.heap) > 0 {
		c := w.pop()
		s := &w.symbols[c.at]
		if s.id < 0 || s.rank != c.rank || s.next < 0 {
			continue
		}
		gone := &w.symbols[s.next]
		s.id, s.next = c.into, gone.next
		gone.id = -1
		if s.next >= 0 {
			w.symbols[s.next].prev = c.at
		}
		m.offer(w, c.at)
		if s.prev >= 0 {
			m.offer(w, s.prev)
		}
	}
	out := ids[:0]
	for i := int32(0); i >= 0; i = w.symbols[i].next {
		out = append(out, w.symbols[i].id)
	}
	return out
}

// offer puts the pair at an index into the heap, if it merges.
func (m *merges) offer(w *mergeBuffer, at int32) {
	s := &w.symbols[at]
	s.rank = noMerge
	if s.next < 0 {
		return
	}
	s.rank, s.into = m.rank(s.id, w.symbols[s.next].id)
	if s.rank != noMerge {
		w.push(candidate{s.rank, at, s.into})
	}
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

func (w *mergeBuffer) push(c candidate) {
	w.heap = append(w.heap, c)
	i := len(w.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !w.heap[i].before(w.heap[up]) {
			return
		}
		w.heap[i], w.heap[up] = w.heap[up], w.heap[i]
		i = up
	}
}

func (w *mergeBuffer) pop() candidate {
	top := w.heap[0]
	n := len(w.heap) - 1
	w.heap[0] = w.heap[n]
	w.heap = w.heap[:n]
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			return top
		}
		if down+1 < n && w.heap[down+1].before(w.heap[down]) {
			down++
		}
		if !w.heap[down].before(w.heap[i]) {
			return top
		}
		w.heap[i], w.heap[down] = w.heap[down], w.heap[i]
		i = down
	}
}
