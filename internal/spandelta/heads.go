package spandelta

import (
	"bytes"
	"container/list"
	"hash/maphash"
	"slices"
	"sync"
)

const (
	// MinSize is the size of a document from which deltas are tried, in bytes. Below it, which the record of a
	// short call is, a delta saves less than a page of a database, and to find it takes longer than to store the document.
	MinSize = 3 << 10
	// MaxHeads is how many spans of an attempt later ones may continue. Conversations that run
	// beside each other continue their own.
	MaxHeads = 8
	// maxChain bounds how many spans are read in order to expand one.
	maxChain = 1024
	// DefaultMemory bounds the memory of the layouts, in bytes. The layout of a conversation of
	// 128 turns takes about 25 KB.
	DefaultMemory = 64 << 20
)

// Attempt is whose spans may continue each other.
type Attempt struct{ RolloutID, AttemptID string }

// Head is a span that later ones of its attempt and name may continue.
type Head struct {
	ID, Name string
	Layout   *Layout

	depth int // how many bases are behind it
}

// Heads remembers the layouts of the latest spans of each attempt, and so which spans are written
// as deltas and from which. What it does not remember is not continued, which costs space and
// nothing else. It is safe for concurrent use.
type Heads struct {
	codec *Codec
	seed  maphash.Seed
	limit int // of memory, in bytes

	mu       sync.Mutex
	used     int
	attempts map[Attempt]*list.Element
	recent   list.List // of *heads, the latest first
}

// heads are the heads of an attempt, the latest last. They are never changed.
type heads struct {
	attempt Attempt
	spans   []Head
}

func (h *heads) memory() int {
	const each = 200 // the keys, the list and the map
	n := each
	for i := range h.spans {
		n += each + h.spans[i].Layout.Memory()
	}
	return n
}

// NewHeads returns Heads that use about memory bytes.
func NewHeads(codec *Codec, memory int) *Heads {
	return &Heads{codec: codec, seed: maphash.MakeSeed(), limit: memory, attempts: map[Attempt]*list.Element{}}
}

// Layout returns the layout of a document for [Batch.Add], nil for one that stays whole.
func (h *Heads) Layout(document []byte) *Layout {
	if len(document) < MinSize {
		return nil
	}
	return NewLayout(h.seed, document)
}

// Begin begins a batch of spans that are written together.
func (h *Heads) Begin() *Batch { return &Batch{heads: h, staged: map[Attempt]*staged{}} }

// Forget forgets the spans of an attempt.
func (h *Heads) Forget(attempt Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.attempts[attempt]; e != nil {
		h.remove(e)
	}
}

func (h *Heads) of(attempt Attempt) []Head {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.attempts[attempt]; e != nil {
		return e.Value.(*heads).spans //nolint:forcetypeassert // the list holds nothing else
	}
	return nil
}

func (h *Heads) remove(e *list.Element) {
	old := h.recent.Remove(e).(*heads) //nolint:forcetypeassert // the list holds nothing else
	h.used -= old.memory()
	delete(h.attempts, old.attempt)
}

// Batch makes deltas of spans that are written together. It belongs to one goroutine.
type Batch struct {
	heads  *Heads
	staged map[Attempt]*staged
	spare  [2][]byte // memory for deltas that are compared
}

// staged are the heads of an attempt as the batch sees them.
type staged struct {
	spans []Head
	gone  []*Layout // of heads that others of the batch stand for now
	added []*Layout
}

func (s *staged) drop(i int) {
	s.gone = append(s.gone, s.spans[i].Layout)
	s.spans = slices.Delete(s.spans, i, i+1)
}

// Add takes the next span of a batch. It returns the span that it continues, which is one of an
// earlier batch or an earlier one of this batch, and the delta; or nil if the span stays whole.
func (b *Batch) Add(attempt Attempt, id, name string, document []byte, layout *Layout) (base *Head, delta []byte) {
	s := b.staged[attempt]
	if s == nil {
		s = &staged{spans: slices.Clone(b.heads.of(attempt))}
		b.staged[attempt] = s
	}
	next := Head{ID: id, Name: name, Layout: layout}
	best, shortest := -1, Delta{}
	for i := len(s.spans) - 1; i >= 0; i-- {
		h := &s.spans[i]
		if h.Name != name || h.depth >= maxChain {
			continue
		}
		d := h.Layout.delta(b.spare[0], document, layout)
		b.spare[0] = d.Bytes
		if best < 0 || len(d.Bytes) < len(shortest.Bytes) {
			best, shortest = i, d
			b.spare[0], b.spare[1] = b.spare[1], b.spare[0]
		}
	}
	if best >= 0 && len(shortest.Bytes) <= len(document)/2 {
		found := s.spans[best]
		base, delta, next.depth = &found, bytes.Clone(b.heads.codec.Compress(shortest)), found.depth+1
		if Covers(shortest.Copied, found.Layout.Size()) {
			s.drop(best)
		}
	}
	if len(s.spans) >= MaxHeads {
		s.drop(0)
	}
	s.spans = append(s.spans, next)
	s.added = append(s.added, layout)
	return base, delta
}

// Covers reports whether a document that has so many bytes of its base holds nearly all that the
// base does: what continues the base continues it as well.
func Covers(copied, size int) bool { return copied >= size-size/16 }

// Commit says that the spans of the batch are stored: later ones may continue them.
func (b *Batch) Commit() {
	h := b.heads
	h.mu.Lock()
	defer h.mu.Unlock()
	for attempt, s := range b.staged {
		next := &heads{attempt: attempt}
		// Another batch may have been committed since this one began.
		if e := h.attempts[attempt]; e != nil {
			next.spans = slices.DeleteFunc(slices.Clone(e.Value.(*heads).spans), func(h Head) bool { //nolint:forcetypeassert // the list holds nothing else
				return slices.Contains(s.gone, h.Layout)
			})
			h.remove(e)
		}
		for i := range s.spans {
			if slices.Contains(s.added, s.spans[i].Layout) {
				next.spans = append(next.spans, s.spans[i])
			}
		}
		next.spans = slices.Clone(next.spans[max(0, len(next.spans)-MaxHeads):])
		h.attempts[attempt] = h.recent.PushFront(next)
		h.used += next.memory()
	}
	clear(b.staged)
	for h.used > h.limit {
		h.remove(h.recent.Back())
	}
}
