// Package spanchain decides which spans are stored as deltas from others, and expands them
// when they are read. It is what the engine and archives share.
//
// It must not know how a driver stores anything, nor what the members of a span mean.
package spanchain

import (
	"bytes"
	"container/list"
	"hash/maphash"
	"slices"

	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/store/driver"
)

const (
	// MinSize is the size of a document from which deltas are tried.
	MinSize = 1 << 10
	// maxHeads is how many spans of an attempt later ones may continue. Conversations that run
	// beside each other continue their own.
	maxHeads = 8
	// maxDepth bounds how many spans are read in order to expand one.
	maxDepth = 1024
	// DefaultMemory bounds the memory of the layouts, in bytes. The layout of a conversation of
	// 128 turns takes about 25 KB.
	DefaultMemory = 64 << 20
)

// Shortener turns the payloads of new spans into deltas from spans of the same attempt and
// name that were stored earlier. It remembers the layouts of the latest ones; what it does
// not remember is not continued, which costs space and nothing else. Only Layout and Expand are
// safe for concurrent use.
type Shortener struct {
	codec    *spandelta.Codec
	seed     maphash.Seed
	memory   int // limit
	used     int
	attempts map[driver.AttemptKey]*list.Element
	recent   list.List // of *heads, the latest first
	staged   map[driver.AttemptKey]*heads
}

// heads are the spans of an attempt that later ones may continue, the latest last.
type heads struct {
	attempt driver.AttemptKey
	spans   []head
}

type head struct {
	id, name string
	depth    int // how many bases are behind it
	layout   *spandelta.Layout
}

func (h *heads) memory() int {
	const each = 200 // the keys, the list and the map
	n := each
	for i := range h.spans {
		n += each + h.spans[i].layout.Memory()
	}
	return n
}

// New returns a Shortener that uses about so many bytes.
func New(memory int) *Shortener {
	return &Shortener{codec: spandelta.NewCodec(), seed: maphash.MakeSeed(), memory: memory, attempts: map[driver.AttemptKey]*list.Element{}, staged: map[driver.AttemptKey]*heads{}}
}

// Layout returns the layout of a document for Shorten, nil for one that stays as it is.
func (s *Shortener) Layout(document []byte) *spandelta.Layout {
	if len(document) < MinSize {
		return nil
	}
	return spandelta.NewLayout(s.seed, document)
}

// Shorten makes deltas of new spans that are about to be stored, in their order and in one
// commit. Layouts are those of the spans. Committed must be called when they are stored.
func (s *Shortener) Shorten(spans []driver.SpanRecord, layouts []*spandelta.Layout) {
	clear(s.staged)
	for i := range spans {
		if layouts[i] != nil {
			s.shorten(&spans[i], layouts[i])
		}
	}
}

func (s *Shortener) shorten(span *driver.SpanRecord, layout *spandelta.Layout) {
	h := s.stage(driver.AttemptKey{RolloutID: span.RolloutID, AttemptID: span.AttemptID})
	next := head{id: span.SpanID, name: span.Name, layout: layout}
	best, delta := -1, spandelta.Delta{}
	for i := len(h.spans) - 1; i >= 0; i-- {
		b := &h.spans[i]
		if b.name != span.Name || b.depth >= maxDepth {
			continue
		}
		if d := b.layout.Delta(span.Payload, layout); best < 0 || len(d.Bytes) < len(delta.Bytes) {
			best, delta = i, d
		}
	}
	if best >= 0 && len(delta.Bytes) <= len(span.Payload)/2 {
		base := h.spans[best]
		span.Base, span.Payload, next.depth = base.id, bytes.Clone(s.codec.Compress(delta)), base.depth+1
		if delta.Copied >= base.layout.Size()-base.layout.Size()/16 {
			// It holds all that the base does: what continues the base continues it as well.
			h.spans = slices.Delete(h.spans, best, best+1)
		}
	}
	if len(h.spans) >= maxHeads {
		h.spans = slices.Delete(h.spans, 0, 1)
	}
	h.spans = append(h.spans, next)
}

// stage returns the heads of an attempt for this commit to change.
func (s *Shortener) stage(attempt driver.AttemptKey) *heads {
	if h := s.staged[attempt]; h != nil {
		return h
	}
	h := &heads{attempt: attempt}
	if e := s.attempts[attempt]; e != nil {
		h.spans = slices.Clone(e.Value.(*heads).spans) //nolint:forcetypeassert // the list holds nothing else
	}
	s.staged[attempt] = h
	return h
}

// Committed says that the spans of the last Shorten are stored: later ones may continue them.
func (s *Shortener) Committed() {
	for attempt, h := range s.staged {
		if e := s.attempts[attempt]; e != nil {
			s.remove(e)
		}
		s.attempts[attempt] = s.recent.PushFront(h)
		s.used += h.memory()
	}
	clear(s.staged)
	for s.used > s.memory {
		s.remove(s.recent.Back())
	}
}

func (s *Shortener) remove(e *list.Element) {
	h := s.recent.Remove(e).(*heads) //nolint:forcetypeassert // the list holds nothing else
	s.used -= h.memory()
	delete(s.attempts, h.attempt)
}
