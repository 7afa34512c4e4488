package server

import (
	"bytes"
	"container/list"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/rest/internal/wire"
)

const (
	// baseMemory bounds the documents that a server keeps for clients to continue, in bytes. Those of a conversation
	// of 128 turns take 1 MB. Other bases are read from the store.
	baseMemory = 64 << 20
	// basesPerAttempt is the number of documents that are kept for an attempt: those of two span names.
	basesPerAttempt = 2 * spandelta.MaxHeads
)

// spanBases keeps the documents of the latest spans of each attempt, which later spans may continue. It is safe for
// concurrent use.
type spanBases struct {
	codec *spandelta.Codec
	limit int // of memory, in bytes

	mu       sync.Mutex
	used     int
	attempts map[spandelta.Attempt]*list.Element
	recent   list.List // of *attemptBases, the latest first
}

// attemptBases are the documents of an attempt, the latest last.
type attemptBases struct {
	attempt   spandelta.Attempt
	documents []baseDocument
}

type baseDocument struct {
	wire.SpanBase

	bytes []byte
}

func newSpanBases(memory int, maxBody int64) *spanBases {
	return &spanBases{codec: spandelta.NewBoundedCodec(int(maxBody)), limit: memory, attempts: map[spandelta.Attempt]*list.Element{}}
}

// find returns a document, or nil.
func (b *spanBases) find(base *wire.SpanBase) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.attempts[base.Attempt]
	if e == nil {
		return nil
	}
	b.recent.MoveToFront(e)
	for _, d := range e.Value.(*attemptBases).documents { //nolint:forcetypeassert // the list holds nothing else
		if d.SpanBase == *base {
			return d.bytes
		}
	}
	return nil
}

// add keeps the documents of spans that the store has accepted. short describes the same spans if they arrived in the
// short form.
func (b *spanBases) add(req *wire.AddSpans, short []expanded) {
	for i := range req.Spans {
		if len(req.Documents[i]) < spandelta.MinSize {
			continue
		}
		s, document := &req.Spans[i], bytes.Clone(req.Documents[i])
		d := baseDocument{bytes: document, SpanBase: wire.SpanBase{
			Attempt: spandelta.Attempt{RolloutID: s.RolloutID, AttemptID: s.AttemptID}, ID: s.SpanID,
			Size: len(document), Sum: spandelta.Sum(document),
		}}
		var gone *wire.SpanBase
		if short != nil && short[i].covers {
			gone = short[i].base
		}
		b.put(d, gone)
	}
}

// put keeps a document, in place of the one that gone names, unless gone is nil.
func (b *spanBases) put(d baseDocument, gone *wire.SpanBase) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.attempts[d.Attempt]
	if e == nil {
		e = b.recent.PushFront(&attemptBases{attempt: d.Attempt})
		b.attempts[d.Attempt] = e
	}
	b.recent.MoveToFront(e)
	of := e.Value.(*attemptBases) //nolint:forcetypeassert // the list holds nothing else
	of.documents = slices.DeleteFunc(of.documents, func(old baseDocument) bool {
		drop := old.ID == d.ID || gone != nil && old.SpanBase == *gone
		if drop {
			b.used -= len(old.bytes)
		}
		return drop
	})
	if len(of.documents) == basesPerAttempt {
		b.used -= len(of.documents[0].bytes)
		of.documents = slices.Delete(of.documents, 0, 1)
	}
	of.documents = append(of.documents, d)
	b.used += len(d.bytes)
	for b.used > b.limit {
		oldest := b.recent.Remove(b.recent.Back()).(*attemptBases) //nolint:forcetypeassert // the list holds nothing else
		delete(b.attempts, oldest.attempt)
		for _, d := range oldest.documents {
			b.used -= len(d.bytes)
		}
	}
}

// expanded describes a span that arrived in the short form.
type expanded struct {
	base   *wire.SpanBase // nil if the span arrived whole
	covers bool           // the span contains nearly all of its base
}

// expand turns the short form of a body into JSON. It may read bases from the store.
func (s spans) expand(x *exchange) (body []byte, short []expanded, err error) {
	spans, issue, err := wire.ReadShortSpans(x.body)
	if err != nil {
		return nil, nil, wire.ErrDetail(http.StatusBadRequest, err.Error())
	}
	size := int64(len(`{"issue_sequence_ids":false,"echo":false,"spans":[]}`))
	for i := range spans {
		n := len(spans[i].Bytes)
		if spans[i].Base != nil {
			if n, err = spandelta.SizeOf(spans[i].Bytes); err != nil {
				return nil, nil, wire.ErrUnknownBase(i, err)
			}
		}
		if size += int64(n + len(",")); size > x.maxBody {
			return nil, nil, errTooLarge(x.maxBody)
		}
	}
	if err := httpserver.HoldBody(x.request, size); err != nil {
		return nil, nil, errUnreadable(err)
	}
	short = make([]expanded, len(spans))
	documents := make([][2]int, len(spans)) // in body
	if memory, ok := x.bodies.Get().(*[]byte); ok {
		body = *memory
	}
	body = slices.Grow(body[:0], int(size))
	body = wire.AppendSpans(body, issue, func(dst []byte) []byte {
		dst = append(dst, '[')
		for i := range spans {
			if i > 0 {
				dst = append(dst, ',')
			}
			from := len(dst)
			if dst, short[i], err = s.appendSpan(x, dst, &spans[i], func(base *wire.SpanBase) []byte {
				return earlier(dst, documents[:i], base)
			}); err != nil {
				err = wire.ErrUnknownBase(i, err)
				break
			}
			documents[i] = [2]int{from, len(dst)}
		}
		return append(dst, ']')
	})
	return body, short, err
}

// earlier returns the document of an earlier span in the same request, or nil. Size and checksum identify it.
func earlier(body []byte, documents [][2]int, base *wire.SpanBase) []byte {
	for _, at := range documents {
		document := body[at[0]:at[1]]
		if len(document) == base.Size && spandelta.Sum(document) == base.Sum {
			return document
		}
	}
	return nil
}

// appendSpan appends the document of a span.
func (s spans) appendSpan(x *exchange, dst []byte, span *wire.ShortSpan, earlier func(*wire.SpanBase) []byte) ([]byte, expanded, error) {
	if span.Base == nil {
		return append(dst, span.Bytes...), expanded{}, nil
	}
	base := s.bases.find(span.Base)
	if base == nil {
		base = earlier(span.Base)
	}
	if base == nil {
		var err error
		if base, err = s.stored(x, span.Base); err != nil {
			return dst, expanded{}, err
		}
	}
	dst, copied, err := s.bases.codec.Append(dst, base, span.Bytes)
	return dst, expanded{span.Base, spandelta.Covers(copied, span.Base.Size)}, err
}

var errNoBase = errors.New("the span that it continues is unknown")

// stored reads a base from the store.
func (s spans) stored(x *exchange, base *wire.SpanBase) ([]byte, error) {
	if !s.documents {
		return nil, errNoBase
	}
	page, err := s.store.QuerySpansJSON(x.context(), agl.QuerySpansParams{RolloutID: base.RolloutID, AttemptID: base.AttemptID, SpanID: base.ID})
	if err != nil {
		return nil, err
	}
	for _, document := range page.Items {
		if len(document) == base.Size && spandelta.Sum(document) == base.Sum {
			return document, nil
		}
	}
	return nil, errNoBase
}

// checkBases checks that spans continue only spans of their own attempts.
func checkBases(req *wire.AddSpans, short []expanded) error {
	for i := range req.Spans {
		s := &req.Spans[i]
		if i < len(short) && short[i].base != nil && short[i].base.Attempt != (spandelta.Attempt{RolloutID: s.RolloutID, AttemptID: s.AttemptID}) {
			b := short[i].base
			return wire.ErrDetail(http.StatusBadRequest, fmt.Sprintf("spans[%d] is of attempt %s/%s and continues a span of %s/%s, must be of the same", i, s.RolloutID, s.AttemptID, b.RolloutID, b.AttemptID))
		}
	}
	if len(req.Spans) != len(short) {
		return wire.ErrDetail(http.StatusBadRequest, fmt.Sprintf("the body has %d spans in JSON, must be one for each of the %d sent", len(req.Spans), len(short)))
	}
	return nil
}
