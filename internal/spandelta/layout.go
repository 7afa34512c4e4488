// Package spandelta writes a span as what it adds to an earlier span, its base. The calls
// of a conversation repeat each other: the record of one call holds the whole prompt, most
// of which is the prompt of the call before it. A delta holds the new bytes, and says which
// parts of the base's document go between them.
//
//	base := spandelta.NewLayout(seed, first)
//	delta := codec.Compress(base.Delta(second, spandelta.NewLayout(seed, second)))
//
//	documents := spandelta.NewExpander(codec, func(id string) (spandelta.Stored, bool) { … })
//	second, err := documents.Expand(key)
//
// A delta gives back the document byte for byte, whatever the document is. The package must
// not know what the members of a span mean, nor where spans are stored.
package spandelta

import (
	"encoding/binary"
	"hash/crc32"
	"hash/maphash"
	"math/bits"
	"unsafe"

	"github.com/agl-go/agl/internal/rawjson"
)

// Layout is what is remembered about a document in order to write others as deltas from it: the
// place and the hash of each of its parts, but not its text. It is immutable.
type Layout struct {
	seed  maphash.Seed
	size  int
	sum   uint32 // CRC-32C of the document
	parts []part
}

// part is a member of the document or of an object in it, with the bytes that separate it
// from the part before: a document is its parts, one after the other, and a tail.
type part struct {
	end   int    // offset after the value; the part begins where the part before ends
	value int    // offset of the value
	name  uint64 // hash of what precedes the value
	hash  uint64 // of the value
	// begins is the hash of a long value without its last two bytes: a list or a string
	// that goes on begins with them.
	begins uint64
}

const (
	// maxDepth is how deep the members of a span are that may change by themselves: those of
	// its resource's attributes.
	maxDepth = 3
	// longValue is the size from which a value is looked for under other names, and as the
	// beginning of a longer one.
	longValue = 64
	// closing is the end of a list in a string, which is all that a longer list changes.
	closing = 2
)

// NewLayout reads the layout of a JSON document. Layouts can be compared if their seeds are
// the same.
func NewLayout(seed maphash.Seed, document []byte) *Layout {
	const usual = 64 // the members of the span of a short call
	l := &Layout{seed: seed, size: len(document), sum: Sum(document), parts: make([]part, 0, usual)}
	l.object(document, 0, 1)
	return l
}

// Sum returns the checksum of a document, its CRC-32C.
func Sum(document []byte) uint32 { return crc32.Checksum(document, crc32.MakeTable(crc32.Castagnoli)) }

func (l *Layout) object(document []byte, at, depth int) int {
	return rawjson.WalkMembers(document, at, func(m rawjson.Member) int {
		if depth < maxDepth && document[m.ValueStart] == '{' {
			if end := l.object(document, m.ValueStart, depth+1); end > 0 {
				return end
			}
			return -1
		}
		end := rawjson.SkipValue(document, m.ValueStart)
		if end < 0 {
			return -1
		}
		p := part{end: end, value: m.ValueStart}
		p.name = maphash.Bytes(l.seed, document[l.last():m.ValueStart])
		if end-m.ValueStart < longValue {
			p.hash = maphash.Bytes(l.seed, document[m.ValueStart:end])
		} else { // hashed once
			p.begins = maphash.Bytes(l.seed, document[m.ValueStart:end-closing])
			p.hash = bits.RotateLeft64(p.begins, 16) ^ uint64(binary.LittleEndian.Uint16(document[end-closing:end]))
		}
		l.parts = append(l.parts, p)
		return end
	})
}

// last is the offset after the last part.
func (l *Layout) last() int {
	if len(l.parts) == 0 {
		return 0
	}
	return l.parts[len(l.parts)-1].end
}

// start is the offset of a part.
func (l *Layout) start(i int) int {
	if i == 0 {
		return 0
	}
	return l.parts[i-1].end
}

// Size returns the size of the document in bytes.
func (l *Layout) Size() int { return l.size }

// Sum returns the checksum of the document.
func (l *Layout) Sum() uint32 { return l.sum }

// Memory returns how many bytes the layout takes.
func (l *Layout) Memory() int {
	return int(unsafe.Sizeof(*l)) + cap(l.parts)*int(unsafe.Sizeof(part{}))
}
