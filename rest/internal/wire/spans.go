package wire

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spanjson"
)

// AppendSpans appends the body of [SpansBatch], which asks for the answer [StoredSpans]. list appends the list of
// spans.
func AppendSpans(dst []byte, issueSequenceIDs bool, list func(dst []byte) []byte) []byte {
	o := rawjson.NewObject(dst)
	o.Bool("issue_sequence_ids", issueSequenceIDs)
	o.Bool("echo", false)
	o.Key("spans")
	o = list(o)
	return o.End()
}

// AddSpan is the body that posts to [Spans].
type AddSpan struct {
	Body *[]byte // the bytes that are decoded; Span shares their memory
	Span agl.Span
}

// UnmarshalJSONFrom reads the body.
func (r *AddSpan) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return spanjson.Read(dec, *r.Body, &r.Span)
}

// AddSpans is the body of [SpansBatch].
type AddSpans struct {
	Body             *[]byte // the bytes that are decoded; Spans share their memory
	Spans            []agl.Span
	Documents        [][]byte // of the spans, as they were sent; they share the memory of Body
	IssueSequenceIDs bool
	Echo             bool // answer with the stored spans themselves; true unless the body says otherwise
}

// UnmarshalJSONFrom reads the body.
func (r *AddSpans) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	in := reader(dec)
	r.Echo = true
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "spans":
			r.Spans, r.Documents = nil, nil
			return in.List(func() error {
				r.Spans = append(r.Spans, agl.Span{})
				before := dec.InputOffset()
				err := spanjson.Read(dec, *r.Body, &r.Spans[len(r.Spans)-1])
				r.Documents = append(r.Documents, bytes.TrimLeft((*r.Body)[before:dec.InputOffset()], ", \t\r\n"))
				return err
			})
		case "issue_sequence_ids":
			return in.Bool(&r.IssueSequenceIDs)
		case "echo":
			return in.Bool(&r.Echo)
		default:
			return in.SkipValue()
		}
	}, "spans")
}

// AppendAnswer appends the answer.
func (r *AddSpans) AppendAnswer(dst []byte, result agl.AddSpansResult) []byte {
	o := rawjson.NewObject(dst)
	if r.Echo {
		o.Key("spans")
		o = rawjson.AppendList(o, result.Stored)
	} else {
		o.Key("stored")
		o = appendStored(o, r.Spans, result.Stored)
	}
	o.Key("cancelled")
	o = rawjson.AppendArray(o, result.Cancelled, rawjson.AppendString[string])
	return o.End()
}

// appendStored appends [index, sequence id] for each stored span. The stored spans are some of those sent, in the
// same order.
func appendStored(dst []byte, sent, stored []agl.Span) []byte {
	dst = append(dst, '[')
	next := 0
	for i := range sent {
		if next == len(stored) {
			break
		}
		a, b := &sent[i], &stored[next]
		if a.SpanID != b.SpanID || a.AttemptID != b.AttemptID || a.RolloutID != b.RolloutID {
			continue
		}
		if next > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, '['), int64(i), 10)
		dst = strconv.AppendInt(append(dst, ','), b.SequenceID, 10)
		dst = append(dst, ']')
		next++
	}
	return append(dst, ']')
}

// StoredSpans answers [SpansBatch] without echo.
type StoredSpans struct {
	Stored    []StoredSpan `json:"stored"`    // those that are new to the store
	Cancelled []string     `json:"cancelled"` // attempts whose agents should stop
}

// StoredSpan is the index of a span in the request, and its sequence id.
type StoredSpan [2]int64

// Read reads the answer to n spans.
func (s *StoredSpans) Read(answer []byte, n int) error {
	if err := rawjson.Unmarshal(answer, s); err != nil {
		return err
	}
	for _, span := range s.Stored {
		if span[0] < 0 || span[0] >= int64(n) {
			return agl.Errorf(agl.CodeInternal, "stored: got index %d, must be that of one of the %d spans sent", span[0], n)
		}
	}
	return nil
}

// SequenceID answers [NextSequenceID] with the first id that is reserved.
type SequenceID struct {
	First int64 `json:"sequence_id"`
}

// AppendJSON appends the answer.
func (s SequenceID) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.Int("sequence_id", s.First)
	return o.End()
}

// SequenceIDs answers [NextSequenceIDsBatch] with the first id of each attempt.
type SequenceIDs struct {
	First []int64 `json:"sequence_ids"`
}

// AppendJSON appends the answer.
func (s SequenceIDs) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.Key("sequence_ids")
	o = rawjson.AppendArray(o, s.First, rawjson.AppendInt[int64])
	return o.End()
}
