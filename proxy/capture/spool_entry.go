package capture

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/spool"
)

// spoolEntry is a call in the spool. Its encoding is a version byte; the call's uid,
// start (Unix nanoseconds) and sequence id (0 for none), 8 bytes each; the rollout id
// and the attempt id, each preceded by its length as a uvarint; and the spans as JSON.
// A mark is the uid and the two ids.
type spoolEntry struct {
	uid                  uint64 // unique among the calls of all processes
	start                int64
	sequence             int64
	rolloutID, attemptID string
	spans                []byte // a JSON list
}

const entryVersion = 1

// newSpoolEntry returns the entry of a call whose spans are built.
func newSpoolEntry(e *entry) spoolEntry {
	spans := []byte{'['}
	for i := range e.spans {
		if i > 0 {
			spans = append(spans, ',')
		}
		spans = append(spans, e.spans[i]...)
	}
	return spoolEntry{e.mark.uid, e.start.UnixNano(), e.recordedID, e.attempt.rollout.id, e.attempt.id, append(spans, ']')}
}

func (s *spoolEntry) append(dst []byte) []byte {
	dst = append(dst, entryVersion)
	dst = binary.LittleEndian.AppendUint64(dst, s.uid)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.start))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.sequence))
	dst = appendID(appendID(dst, s.rolloutID), s.attemptID)
	return append(dst, s.spans...)
}

func appendID(dst []byte, id string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(id))), id...)
}

func cutID(raw []byte) (id string, rest []byte, ok bool) {
	n, size := binary.Uvarint(raw)
	if size <= 0 || n > uint64(len(raw)-size) {
		return "", nil, false
	}
	return string(raw[size : size+int(n)]), raw[size+int(n):], true
}

// parseSpoolEntry reads an entry. Its spans share raw's memory.
func parseSpoolEntry(raw []byte) (s spoolEntry, err error) {
	const fixed = 1 + 3*8
	if len(raw) < fixed || raw[0] != entryVersion {
		return s, errors.New("the record has an unknown version")
	}
	s.uid = binary.LittleEndian.Uint64(raw[1:])
	s.start = int64(binary.LittleEndian.Uint64(raw[9:]))
	s.sequence = int64(binary.LittleEndian.Uint64(raw[17:]))
	if s.spans, err = s.cutIDs(raw[fixed:]); err != nil {
		return s, err
	}
	return s, nil
}

func (s *spoolEntry) cutIDs(raw []byte) (rest []byte, err error) {
	var ok bool
	if s.rolloutID, rest, ok = cutID(raw); ok {
		s.attemptID, rest, ok = cutID(rest)
	}
	if !ok {
		return nil, errors.New("the record ends within its ids")
	}
	return rest, nil
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
	_, err := s.cutIDs(raw[8:])
	return s, err == nil
}

// decode returns the entry's spans with the given sequence id.
func (s *spoolEntry) decode(sequence int64) ([]jsontext.Value, error) {
	var spans []jsontext.Value
	d := jsontext.NewDecoder(strings.NewReader(string(s.spans)))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	for d.PeekKind() == '{' {
		raw, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		var span agl.Span
		if err := rawjson.Unmarshal(raw, &span); err != nil {
			return nil, err
		}
		if span.SequenceID != sequence {
			span.SequenceID = sequence
			span.Resource.Attributes, err = span.Resource.Attributes.With(agl.Attr{Key: agl.AttrSpanSequenceID, Value: sequence})
			if err != nil {
				return nil, err
			}
		}
		spans = append(spans, span.AppendJSON(nil))
	}
	_, err := d.ReadToken()
	return spans, err
}
