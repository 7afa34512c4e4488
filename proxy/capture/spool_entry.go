package capture

import (
	"encoding/binary"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/proxy/spool"
)

// spoolEntry is a call in the spool. Its encoding is a version byte; the call's uid,
// start (Unix nanoseconds) and sequence id (0 for none), 8 bytes each; the rollout id
// and the attempt id, each preceded by its length as a uvarint; the size of the spans' documents
// as a uvarint; and the spans. A mark is the uid and the two ids.
//
// A span is the uvarint 2n and the n bytes of its document; or the uvarint 2n+1, the place of its
// base as two uvarints (the offset of a record of the same segment, and the index of the span in
// it), and the n bytes of the delta. Version 1 has the documents as a JSON list instead, without
// their size.
type spoolEntry struct {
	uid                  uint64 // unique among the calls of all processes
	start                int64
	sequence             int64
	rolloutID, attemptID string
	size                 int // of the documents
	spans                []spooledSpan
}

// spooledSpan is a span of an entry.
type spooledSpan struct {
	base  string // the place of the base; empty if bytes are the document itself
	bytes []byte // the document, or the delta from the base's
}

// placeOf returns the place of a span in its segment: the offset of its record, and its index in
// the record.
func placeOf(offset int64, index int) string {
	return string(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(offset)), uint64(index)))
}

const (
	wholeVersion = 1 // documents without deltas
	entryVersion = 2
)

// newSpoolEntry returns the entry of a call whose spans are built.
func newSpoolEntry(e *entry) spoolEntry {
	s := spoolEntry{uid: e.mark.uid, start: e.start.UnixNano(), sequence: e.recordedID, rolloutID: e.attempt.rollout.id, attemptID: e.attempt.id}
	for _, document := range e.spans {
		s.spans = append(s.spans, spooledSpan{bytes: document})
		s.size += len(document)
	}
	return s
}

func (s *spoolEntry) encode() []byte {
	dst := []byte{entryVersion}
	dst = binary.LittleEndian.AppendUint64(dst, s.uid)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.start))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.sequence))
	dst = appendID(appendID(dst, s.rolloutID), s.attemptID)
	dst = binary.AppendUvarint(dst, uint64(s.size))
	for i := range s.spans {
		span := &s.spans[i]
		head := uint64(len(span.bytes)) << 1
		if span.base != "" {
			head |= 1
		}
		dst = append(binary.AppendUvarint(dst, head), span.base...)
		dst = append(dst, span.bytes...)
	}
	return dst
}

func appendID(dst []byte, id string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(id))), id...)
}

// parseSpoolEntry reads an entry. Its spans share raw's memory.
func parseSpoolEntry(raw []byte) (s spoolEntry, err error) {
	const fixed = 1 + 3*8
	if len(raw) < fixed || raw[0] != entryVersion && raw[0] != wholeVersion {
		return s, errors.New("the record has an unknown version")
	}
	s.uid = binary.LittleEndian.Uint64(raw[1:])
	s.start = int64(binary.LittleEndian.Uint64(raw[9:]))
	s.sequence = int64(binary.LittleEndian.Uint64(raw[17:]))
	in := spandelta.Reader{Rest: raw[fixed:]}
	if s.rolloutID, s.attemptID = in.Text(), in.Text(); in.Cut {
		return s, errors.New("the record ends within its ids")
	}
	if raw[0] == wholeVersion {
		return s, s.readWhole(in.Rest)
	}
	s.size = int(in.Uvarint())
	for len(in.Rest) > 0 && !in.Cut {
		var span spooledSpan
		head := in.Uvarint()
		if head&1 != 0 {
			offset, index := in.Uvarint(), in.Uvarint()
			span.base = placeOf(int64(offset), int(index))
		}
		span.bytes = in.Bytes(head >> 1)
		s.spans = append(s.spans, span)
	}
	if in.Cut || s.size < 0 {
		return s, errors.New("the record ends within its spans")
	}
	return s, nil
}

// readWhole reads the spans of version 1.
func (s *spoolEntry) readWhole(list []byte) error {
	s.size = len(list)
	if complete := rawjson.EachElement(list, func(document []byte) { s.spans = append(s.spans, spooledSpan{bytes: document}) }); !complete {
		return errors.New("the record's spans are not a list of JSON")
	}
	return nil
}

// appendMark appends the mark of a call. Ids that do not fit are left out.
func (s *spoolEntry) appendMark(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, s.uid)
	if raw := appendID(appendID(dst, s.rolloutID), s.attemptID); len(raw) <= spool.MaxMark {
		return raw
	}
	return appendID(appendID(dst, ""), "")
}

func parseMark(raw []byte) (s spoolEntry, ok bool) {
	if len(raw) < 8 {
		return s, false
	}
	s.uid = binary.LittleEndian.Uint64(raw)
	in := spandelta.Reader{Rest: raw[8:]}
	s.rolloutID, s.attemptID = in.Text(), in.Text()
	return s, !in.Cut
}

// withSequence returns a span with the given sequence id.
func withSequence(document jsontext.Value, sequence int64) (jsontext.Value, error) {
	var span agl.Span
	if err := rawjson.Unmarshal(document, &span); err != nil {
		return nil, err
	}
	if span.SequenceID != sequence {
		span.SequenceID = sequence
		var err error
		span.Resource.Attributes, err = span.Resource.Attributes.With(agl.Attr{Key: agl.AttrSpanSequenceID, Value: sequence})
		if err != nil {
			return nil, err
		}
	}
	return span.AppendJSON(nil), nil
}
