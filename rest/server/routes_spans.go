package server

import (
	"hash/maphash"
	"net/http"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// spans serves spans and their sequence ids.
type spans struct {
	store     agl.Store
	documents bool // the store returns spans as documents
	short     bool // and in short form
	bases     *spanBases
}

func (s spans) add(x *exchange) error {
	req := wire.AddSpan{Body: &x.body}
	if err := x.decode(&req, bodyRequired); err != nil {
		return err
	}
	result, err := s.store.AddSpans(x.context(), agl.AddSpansParams{Spans: []agl.Span{req.Span}})
	if err != nil {
		return err
	}
	if len(result.Cancelled) > 0 {
		x.tellCancelled()
	}
	if len(result.Stored) == 0 { // it was stored before
		return x.answerText(http.StatusCreated, "null")
	}
	return x.answer(http.StatusCreated, &result.Stored[0], nil)
}

func (s spans) addBatch(x *exchange) error {
	req := wire.AddSpans{Body: &x.body}
	short, err := s.readBatch(x, &req)
	if err != nil {
		return err
	}
	var result agl.AddSpansResult
	if len(req.Spans) > 0 {
		// The answer refers to the spans as they arrived, so the store gets copies.
		p := agl.AddSpansParams{Spans: slices.Clone(req.Spans), IssueSequenceIDs: req.IssueSequenceIDs}
		if result, err = s.store.AddSpans(x.context(), p); err != nil {
			return err
		}
	}
	if short != nil || x.request.Header.Get(wire.SpanForm) == wire.SpanDeltas {
		x.Header().Set(wire.SpanForm, wire.SpanDeltas)
		s.bases.add(&req, short)
	}
	if len(result.Cancelled) > 0 {
		x.tellCancelled()
	}
	return x.send(http.StatusCreated, req.AppendAnswer(x.out, result))
}

// readBatch reads spans. short describes those of a body in the short form, in order; it is nil for a body in JSON.
func (s spans) readBatch(x *exchange, req *wire.AddSpans) (short []expanded, err error) {
	if x.request.Header.Get("Content-Type") != wire.ShortSpans {
		return nil, x.decode(req, bodyRequired)
	}
	if err := x.readBody(); err != nil {
		return nil, err
	}
	body, short, err := s.expand(x)
	if err != nil {
		return nil, err
	}
	x.replaceBody(body)
	if err := x.decoder.Decode(body, req); err != nil {
		return nil, err
	}
	return short, checkBases(req, short)
}

func (s spans) query(x *exchange) error {
	var short agl.QueryShortSpansParams
	if err := x.query(wire.QuerySpans(&short)); err != nil {
		return err
	}
	p := short.QuerySpansParams
	if len(short.Values) > 0 {
		if s.short {
			spans, err := s.store.QueryShortSpans(x.context(), short)
			return x.answer(http.StatusOK, wire.SpansInShort{ShortSpans: spans}, err)
		}
		if len(p.AttributeNames) > 0 {
			p.AttributeNames = append(p.AttributeNames, short.Values...)
		}
	}
	if !s.documents {
		return (&listing[agl.Span]{
			paging: &p.Paging,
			read:   func() (agl.Page[agl.Span], error) { return s.store.QuerySpans(x.context(), p) },
			one:    appendTo[agl.Span],
			key:    func(h *maphash.Hash, span *agl.Span) { _, _ = h.WriteString(span.AttemptID + "/" + span.SpanID) },
			grows:  true,
		}).answer(x)
	}
	return (&listing[jsontext.Value]{
		paging: &p.Paging,
		read:   func() (agl.Page[jsontext.Value], error) { return s.store.QuerySpansJSON(x.context(), p) },
		one:    appendDocument,
		key:    func(h *maphash.Hash, doc *jsontext.Value) { _, _ = h.Write(*doc) }, // spans never change
		grows:  true,
	}).answer(x)
}

func (s spans) nextSequenceID(x *exchange) error {
	var p agl.ReserveSequenceIDsParams
	if err := x.decode(wire.ReserveSequenceIDs(&p), bodyRequired); err != nil {
		return err
	}
	first, err := s.store.ReserveSequenceIDs(x.context(), p)
	return x.answer(http.StatusOK, wire.SequenceID{First: first}, err)
}

// maxReserving bounds the concurrent reservations of one request.
const maxReserving = 256

// nextSequenceIDs makes the reservations concurrently, because stores commit concurrent
// operations together.
func (s spans) nextSequenceIDs(x *exchange) error {
	var attempts []agl.ReserveSequenceIDsParams
	if err := x.decode(wire.ReserveSequenceIDsOf(&attempts), bodyRequired); err != nil {
		return err
	}
	n := len(attempts)
	answer := wire.SequenceIDs{First: make([]int64, n)}
	errs := make([]error, n)
	for from := 0; from < n; from += maxReserving {
		var group sync.WaitGroup
		for i := from; i < min(from+maxReserving, n); i++ {
			group.Go(func() {
				answer.First[i], errs[i] = s.store.ReserveSequenceIDs(x.context(), attempts[i])
			})
		}
		group.Wait()
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return x.answer(http.StatusOK, answer, nil)
}
