package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/proxy/spool"
)

// A span in the spool is written as its delta from an earlier span of the same segment. Both can be
// read for the same time, because a segment is removed as a whole.

// spoolHeads knows from which spans of a segment later ones may be deltas. It belongs to the goroutine
// that writes the spool.
type spoolHeads struct {
	codec   *spandelta.Codec
	segment uint64
	heads   *spandelta.Heads // of the segment; nil if nothing is known
}

// spoolHeadBytes bounds the memory of spoolHeads.
const spoolHeadBytes = 16 << 20

// encode returns the records of calls, which are to be written at a place in the spool. The caller calls
// keep once they are.
func (h *spoolHeads) encode(at spool.Ref, batch []*entry) (records [][]byte, keep func()) {
	if h.heads == nil || h.segment != at.Segment() {
		h.segment, h.heads = at.Segment(), spandelta.NewHeads(h.codec, spoolHeadBytes)
	}
	spans := h.heads.Begin()
	offset := at.Offset()
	for _, e := range batch {
		s := newSpoolEntry(e)
		attempt := spandelta.Attempt{RolloutID: s.rolloutID, AttemptID: s.attemptID}
		for i := range s.spans {
			span := &s.spans[i]
			layout := h.heads.Layout(span.bytes)
			if layout == nil {
				continue
			}
			// The span with the same index in an earlier call is the base.
			place := placeOf(offset, i)
			if base, delta := spans.Add(attempt, place, strconv.Itoa(i), span.bytes, layout); base != nil {
				span.base, span.bytes = base.ID, delta
			}
		}
		record := s.encode()
		records = append(records, record)
		offset = spool.After(offset, len(record))
	}
	return records, spans.Commit
}

// forget makes the next spans whole.
func (h *spoolHeads) forget() { h.heads = nil }

// spoolReader reads the spans of a segment. It belongs to the goroutine that replays the spool.
type spoolReader struct {
	codec    *spandelta.Codec
	records  *spool.Log
	of       spool.Ref // a record of the segment
	expander *spandelta.Expander
	held     int // bytes that expander has read
	err      error
}

// spoolReaderBytes bounds the bytes of a segment that a reader holds, besides the spans that it expands.
const spoolReaderBytes = 8 << 20

// documents returns the documents of an entry's spans, which may share its memory.
func (r *spoolReader) documents(ref spool.Ref, s *spoolEntry) ([][]byte, error) {
	if r.expander == nil || r.of.Segment() != ref.Segment() || r.held > spoolReaderBytes {
		r.of, r.held, r.err = ref, 0, nil
		r.expander = spandelta.NewExpander(r.codec, r.stored)
	}
	documents := make([][]byte, len(s.spans))
	for i := range s.spans {
		if s.spans[i].base == "" {
			documents[i] = s.spans[i].bytes
			continue
		}
		var err error
		if documents[i], err = r.expander.Expand(placeOf(ref.Offset(), i)); err != nil {
			err = errors.Join(err, r.err)
			r.expander = nil
			return nil, err
		}
	}
	return documents, nil
}

// stored reads a span by its place.
func (r *spoolReader) stored(place string) (spandelta.Stored, bool) {
	span, err := r.read([]byte(place))
	if err != nil {
		r.err = err
		return spandelta.Stored{}, false
	}
	r.held += len(span.bytes)
	return spandelta.Stored{Base: span.base, Payload: span.bytes}, true
}

func (r *spoolReader) read(place []byte) (spooledSpan, error) {
	offset, n := binary.Uvarint(place)
	index, _ := binary.Uvarint(place[n:])
	ref, err := r.records.At(r.of, int64(offset))
	if err != nil {
		return spooledSpan{}, err
	}
	raw, err := r.records.Read(ref)
	if err != nil {
		return spooledSpan{}, err
	}
	s, err := parseSpoolEntry(raw)
	if err != nil {
		return spooledSpan{}, err
	}
	if index >= uint64(len(s.spans)) {
		return spooledSpan{}, fmt.Errorf("the record at byte %d has %d spans, none of index %d", offset, len(s.spans), index)
	}
	return s.spans[index], nil
}
