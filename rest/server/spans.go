package server

import (
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
	documents bool // the store hands out spans as documents
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
	if len(result.Stored) == 0 { // it was there before
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
		// The answer refers to the spans as they came in, whatever the store does to its own.
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

// readBatch reads spans. short are those of a body in the short form, in order; nil of one in JSON.
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
	var p agl.QuerySpansParams
	if err := x.query(wire.QuerySpans(&p)); err != nil {
		return err
	}
	if !s.documents {
		page, err := s.store.QuerySpans(x.context(), p)
		return answerPage(x, page, err)
	}
	limit := p.Limit
	piecewise := limit < 0 && (p.SortBy == "" || p.SortBy == "sequence_id" && p.Order != agl.Descending)
	if piecewise {
		p.Limit = firstSpans
	}
	page, err := s.store.QuerySpansJSON(x.context(), p)
	if err != nil {
		return err
	}
	page.Limit = limit
	var more func() ([]jsontext.Value, int, error)
	if piecewise && page.Total > p.Offset+len(page.Items) {
		more = s.laterSpans(x, p, page)
	}
	return sendPage(x, page, func(dst []byte, doc *jsontext.Value) []byte { return append(dst, *doc...) }, more)
}

const (
	// firstSpans is how many of all spans of a rollout are read first, and laterBytes how much
	// of the others at once.
	firstSpans = 64
	maxSpans   = 4096
	laterBytes = 4 << 20
)

// laterSpans returns what reads the spans after a page, some at a time. In the order of sequence
// ids, spans that are added meanwhile come last.
func (s spans) laterSpans(x *exchange, p agl.QuerySpansParams, page agl.Page[jsontext.Value]) func() ([]jsontext.Value, int, error) {
	size, read := 0, len(page.Items)
	for _, doc := range page.Items {
		size += len(doc)
	}
	total := page.Total
	return func() ([]jsontext.Value, int, error) {
		if p.Offset+read >= total {
			return nil, total, nil
		}
		p.Offset += read
		p.Limit = min(max(laterBytes/max(size/max(read, 1), 1), 1), maxSpans)
		later, err := s.store.QuerySpansJSON(x.context(), p)
		if err != nil {
			return nil, 0, err
		}
		size, read, total = 0, len(later.Items), later.Total
		for _, doc := range later.Items {
			size += len(doc)
		}
		if read == 0 { // they have been deleted meanwhile
			total = p.Offset
		}
		return later.Items, total, nil
	}
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
