package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spandelta"
)

// The body of [SpansBatch] has a second, short form, in which a span may be written as what it adds to an earlier
// span of its attempt. A client asks for it by the header SpanForm with the value SpanDeltas on a request in JSON
// whose spans it may continue,
// and uses it if the answer has the same header. The server then remembers the documents of spans that it has
// accepted, or finds them in its store. If it cannot expand a span, it rejects the request with CodeUnknownBase
// before it stores anything, and the client sends the same spans in JSON.
const (
	SpanForm    = "Agl-Span-Form"
	SpanDeltas  = "deltas"
	ShortSpans  = "application/vnd.agl.spans" // the Content-Type of the short form
	shortForm   = 1
	issueIDs    = 1 // a flag
	minShortLen = 2
)

// CodeUnknownBase says that a span continues a span that the server does not have.
const CodeUnknownBase agl.Code = "unknown_base"

// ErrUnknownBase rejects a span that continues a span that the server does not have.
func ErrUnknownBase(index int, why error) *StatusError {
	err := agl.Errorf(CodeUnknownBase, "spans[%d]: cannot be expanded: %w; send it whole", index, why)
	o := rawjson.NewObject(nil)
	o.String("detail", err.Error())
	o.String("error_type", "ValueError")
	o.String("code", string(CodeUnknownBase))
	return &StatusError{Status: http.StatusConflict, Body: o.End()}
}

// ShortSpan is a span in the short form. Bytes is its document or, with a Base, the delta from the base's document.
type ShortSpan struct {
	Base  *SpanBase
	Bytes []byte
}

// SpanBase identifies the document that a span continues: that of a span of the same attempt, with this size in bytes
// and this checksum.
type SpanBase struct {
	spandelta.Attempt

	ID   string
	Size int
	Sum  uint32
}

// AppendShortSpans appends the body: a byte for the form, one for the flags, and the spans. A span
// is the uvarint 2n and the n bytes of its document; or the uvarint 2n+1, its base and the n
// bytes of the delta. A base is the ids of the rollout, the attempt and the span, each after its
// length, the size of its document, all lengths and sizes as uvarints, and its checksum, 4 bytes,
// little-endian.
func AppendShortSpans(dst []byte, issueSequenceIDs bool, spans []ShortSpan) []byte {
	flags := byte(0)
	if issueSequenceIDs {
		flags |= issueIDs
	}
	dst = append(dst, shortForm, flags)
	for i := range spans {
		s := &spans[i]
		head := uint64(len(s.Bytes)) << 1
		if s.Base == nil {
			dst = binary.AppendUvarint(dst, head)
		} else {
			dst = binary.AppendUvarint(dst, head|1)
			for _, id := range [...]string{s.Base.RolloutID, s.Base.AttemptID, s.Base.ID} {
				dst = append(binary.AppendUvarint(dst, uint64(len(id))), id...)
			}
			dst = binary.AppendUvarint(dst, uint64(s.Base.Size))
			dst = binary.LittleEndian.AppendUint32(dst, s.Base.Sum)
		}
		dst = append(dst, s.Bytes...)
	}
	return dst
}

var errShortCut = errors.New("the body ends within a span")

// ReadShortSpans reads the body. The spans share its memory.
func ReadShortSpans(body []byte) (spans []ShortSpan, issueSequenceIDs bool, err error) {
	if len(body) < minShortLen || body[0] != shortForm || body[1]&^issueIDs != 0 {
		return nil, false, fmt.Errorf("the body begins with % x, must begin with %d and a flag of 0 or %d", body[:min(len(body), minShortLen)], shortForm, issueIDs)
	}
	issueSequenceIDs = body[1]&issueIDs != 0
	in := spandelta.Reader{Rest: body[minShortLen:]}
	for len(in.Rest) > 0 && !in.Cut {
		var s ShortSpan
		head := in.Uvarint()
		if head&1 != 0 {
			s.Base = &SpanBase{Attempt: spandelta.Attempt{RolloutID: in.Text(), AttemptID: in.Text()}, ID: in.Text()}
			s.Base.Size = int(min(in.Uvarint(), 1<<40))
			if sum := in.Bytes(4); sum != nil {
				s.Base.Sum = binary.LittleEndian.Uint32(sum)
			}
		}
		s.Bytes = in.Bytes(head >> 1)
		spans = append(spans, s)
	}
	if in.Cut {
		return nil, false, errShortCut
	}
	return spans, issueSequenceIDs, nil
}
