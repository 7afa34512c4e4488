package spandelta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// The form of a delta: a byte that says how the pieces are written; the size of the document as a uvarint; its CRC-32C,
// four bytes, little-endian; and then its pieces in order. A piece is the uvarint 2n and n
// bytes of text, or the uvarint 2n+1 and, as a varint, the place in the base's document of
// the n bytes that it stands for, counted from the end of the piece that was copied last.
// The pieces are written as they are, or as one frame of zstd if that is shorter.
const (
	plain      = 1
	compressed = 2
)

// minCompressed is the size of pieces below which compression is not tried.
const minCompressed = 1 << 10

// Codec compresses the text of deltas. It is safe for concurrent use.
type Codec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
	limit   int // of a document, in bytes
}

// NewCodec returns a Codec. It holds no resources but memory.
func NewCodec() *Codec { return NewBoundedCodec(maxDocument) }

// NewBoundedCodec returns a Codec that expands no delta whose document has more bytes than limit.
func NewBoundedCodec(limit int) *Codec {
	limit = min(limit, maxDocument)
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true), zstd.WithSingleSegment(true))
	if err != nil {
		panic(err) // the options are constants
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(uint64(max(limit, window))), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return &Codec{encoder, decoder, limit}
}

const window = 128 << 10

// writer appends the pieces of a delta.
type writer struct {
	dst         []byte
	document    []byte
	written     int // how much of the document the pieces in dst are
	from, to    int // the part of the base that is being copied; nothing if they are equal
	copiedUntil int // in the base, by the pieces in dst
	copied      int // bytes that are copied
}

// copy says that the next n bytes of the document are those of the base at from.
func (w *writer) copy(from, n int) {
	if w.from < w.to && w.to == from {
		w.to += n
		return
	}
	w.endCopy()
	w.from, w.to = from, from+n
}

// endCopy writes the copy that has begun.
func (w *writer) endCopy() {
	n := w.to - w.from
	if n == 0 {
		return
	}
	w.dst = binary.AppendUvarint(w.dst, uint64(n)<<1|1)
	w.dst = binary.AppendVarint(w.dst, int64(w.from-w.copiedUntil))
	w.copiedUntil = w.to
	w.copied += n
	w.written += n
	w.from, w.to = 0, 0
}

// text says that the document up to end is not in the base.
func (w *writer) text(end int) {
	w.endCopy()
	if n := end - w.written; n > 0 {
		w.dst = binary.AppendUvarint(w.dst, uint64(n)<<1)
		w.dst = append(w.dst, w.document[w.written:end]...)
		w.written = end
	}
}

// Delta is a document as the difference from a base.
type Delta struct {
	Bytes  []byte
	Copied int // how many bytes of the document are the base's

	head int // where in Bytes the pieces begin
}

// Compress returns the bytes of a delta, compressed if that saves an eighth.
func (c *Codec) Compress(d Delta) []byte {
	pieces := d.Bytes[d.head:]
	if len(pieces) < minCompressed {
		return d.Bytes
	}
	out := make([]byte, d.head, len(d.Bytes))
	copy(out, d.Bytes)
	if out = c.encoder.EncodeAll(pieces, out); len(out) > len(d.Bytes)*7/8 {
		return d.Bytes
	}
	out[0] = compressed
	return out
}

// Delta returns the delta from the document of l to another document, whose layout is given.
func (l *Layout) Delta(document []byte, of *Layout) Delta { return l.delta(nil, document, of) }

// delta is Delta in the memory of dst.
func (l *Layout) delta(dst, document []byte, of *Layout) Delta {
	dst = append(dst[:0], plain)
	dst = binary.AppendUvarint(dst, uint64(len(document)))
	dst = binary.LittleEndian.AppendUint32(dst, of.sum)
	head := len(dst)
	w := writer{dst: dst, document: document}
	m := matcher{base: l}
	for i := range of.parts {
		p, start := &of.parts[i], of.start(i)
		size := p.end - p.value
		switch at, how := m.find(document, p); how {
		case wholePart:
			w.textBefore(start)
			w.copy(l.start(at), p.end-start)
		case sameValue:
			w.textBefore(p.value)
			w.copy(l.parts[at].value, size)
		case longerValue:
			w.textBefore(start)
			b := &l.parts[at]
			w.copy(l.start(at), b.end-closing-l.start(at))
		case notFound:
		}
	}
	w.text(len(document))
	return Delta{Bytes: w.dst, Copied: w.copied, head: head}
}

// textBefore writes what precedes a copy to at, if anything does.
func (w *writer) textBefore(at int) {
	if w.written+w.to-w.from < at {
		w.text(at)
	}
}

// How a part of a document is found in the base.
type match int

const (
	notFound    match = iota
	wholePart         // the part is the same
	sameValue         // under another name
	longerValue       // the value of the same name begins with the base's
)

// matcher finds the parts of a document in its base.
type matcher struct {
	base    *Layout
	next    int            // the part that is expected to match
	scanned int            // how many parts were looked at without an index
	names   map[uint64]int // the index: the parts by name, and the long ones by value; nil until it is worth its making
	values  map[uint64]int
}

func (m *matcher) find(document []byte, p *part) (int, match) {
	parts := m.base.parts
	size := p.end - p.value
	if m.next < len(parts) && parts[m.next].name == p.name && parts[m.next].same(p) {
		m.next++
		return m.next - 1, wholePart
	}
	if m.names == nil && m.scanned > maxScans*len(parts) {
		m.index()
	}
	if at := m.named(p.name); at >= 0 {
		b := &parts[at]
		if b.same(p) {
			m.next = at + 1
			return at, wholePart
		}
		begins := b.end - b.value - closing
		if b.begins != 0 && size > begins && maphash.Bytes(m.base.seed, document[p.value:p.value+begins]) == b.begins {
			m.next = at + 1
			return at, longerValue
		}
	}
	if size >= longValue {
		if at := m.valued(p); at >= 0 {
			return at, sameValue
		}
	}
	return 0, notFound
}

// maxScans is how often the whole base is scanned before an index of it is made. Most documents need fewer scans.
const maxScans = 16

// named returns the part with a name, -1 if there is none.
func (m *matcher) named(name uint64) int {
	if m.names != nil {
		if at, found := m.names[name]; found {
			return at
		}
		return -1
	}
	parts := m.base.parts
	for i := range parts {
		at := m.next + i
		if at >= len(parts) {
			at -= len(parts)
		}
		if parts[at].name == name {
			m.scanned += i
			return at
		}
	}
	m.scanned += len(parts)
	return -1
}

// valued returns the part with a value, -1 if there is none.
func (m *matcher) valued(p *part) int {
	parts := m.base.parts
	if m.names != nil {
		if at, found := m.values[p.hash]; found && parts[at].same(p) {
			return at
		}
		return -1
	}
	m.scanned += len(parts)
	return slices.IndexFunc(parts, func(b part) bool { return b.same(p) })
}

func (p *part) same(other *part) bool {
	return p.hash == other.hash && p.end-p.value == other.end-other.value
}

func (m *matcher) index() {
	m.names = make(map[uint64]int, len(m.base.parts))
	m.values = map[uint64]int{}
	for i := range m.base.parts {
		b := &m.base.parts[i]
		m.names[b.name] = i
		if b.end-b.value >= longValue {
			m.values[b.hash] = i
		}
	}
}

// piece is a piece of a document: text, or a part of the base.
type piece struct {
	end  int    // in the document; a piece begins where the piece before ends
	text []byte // nil for a part of the base
	from int    // in the base
}

// decoded is a delta that was read.
type decoded struct {
	size   int
	sum    uint32
	pieces []piece
}

// SizeOf returns how many bytes the document of a delta has, as the delta says.
func SizeOf(delta []byte) (size int, err error) {
	if len(delta) == 0 {
		return 0, errCut
	}
	r := Reader{Rest: delta[1:]}
	n := r.Uvarint()
	if r.Cut || n > maxDocument {
		return 0, errCut
	}
	return int(n), nil
}

var errCut = errors.New("the delta ends too early")

// maxDocument is the largest document that any delta may stand for.
const maxDocument = 1 << 30

// decode reads a delta. The pieces may share its memory.
func (c *Codec) decode(raw []byte) (*decoded, error) {
	if len(raw) == 0 || raw[0] != plain && raw[0] != compressed {
		return nil, errors.New("the delta has an unknown form")
	}
	r := Reader{Rest: raw[1:]}
	size, sum := r.Uvarint(), r.Bytes(4)
	if r.Cut {
		return nil, errCut
	}
	if size > uint64(c.limit) {
		return nil, fmt.Errorf("the delta says that its document has %d bytes, more than %d", size, c.limit)
	}
	d := &decoded{size: int(size), sum: binary.LittleEndian.Uint32(sum)}
	if raw[0] == compressed {
		var err error
		if r.Rest, err = c.decoder.DecodeAll(r.Rest, nil); err != nil {
			return nil, err
		}
	}
	at, copiedUntil := 0, 0
	for len(r.Rest) > 0 {
		head := r.Uvarint()
		length := head >> 1
		if r.Cut {
			return nil, errCut
		}
		if length == 0 || length > uint64(d.size-at) {
			return nil, fmt.Errorf("a piece of the delta has %d bytes, %d of %d are left", length, d.size-at, d.size)
		}
		at += int(length)
		p := piece{end: at}
		if head&1 == 0 {
			p.text = r.Bytes(length)
		} else {
			move := r.Varint()
			if move > maxDocument || move < -maxDocument {
				return nil, fmt.Errorf("a piece of the delta is %d bytes away from the piece before", move)
			}
			p.from = copiedUntil + int(move)
			copiedUntil = p.from + int(length)
			if p.from < 0 {
				return nil, fmt.Errorf("a piece of the delta begins at %d of its base", p.from)
			}
		}
		d.pieces = append(d.pieces, p)
	}
	if r.Cut || at != d.size {
		return nil, errCut
	}
	return d, nil
}
