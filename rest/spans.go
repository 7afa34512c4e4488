package rest

import (
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spanjson"
)

func (s *Server) addSpan(c *call) error {
	req := spanRequest{call: c}
	if err := c.decode(&req, true); err != nil {
		return err
	}
	result, err := s.store.AddSpans(c.ctx, agl.AddSpansParams{Spans: []agl.Span{req.span}})
	if err != nil {
		return err
	}
	if len(result.Cancelled) > 0 {
		c.markCancelled()
	}
	if len(result.Stored) == 0 {
		return c.send(http.StatusCreated, append(c.out, "null"...)) // it was there before
	}
	return c.send(http.StatusCreated, result.Stored[0].AppendJSON(c.out))
}

// spanRequest is a span as a body. It refers to the call's memory, as those of
// spansRequest do.
type spanRequest struct {
	call *call
	span agl.Span
}

func (r *spanRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return spanjson.Read(dec, r.call.body, &r.span)
}

// spansRequest is the body of /spans/batch.
type spansRequest struct {
	call             *call
	spans            []agl.Span
	issueSequenceIDs bool
	echo             bool // answer with the stored spans; else with their indices and sequence ids
}

func (r *spansRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		switch string(name) {
		case "spans":
			r.spans = nil
			return read(dec).List(func() error {
				r.spans = append(r.spans, agl.Span{})
				return spanjson.Read(dec, r.call.body, &r.spans[len(r.spans)-1])
			})
		case "issue_sequence_ids":
			return read(dec).Bool(&r.issueSequenceIDs)
		case "echo":
			return read(dec).Bool(&r.echo)
		default:
			return dec.SkipValue()
		}
	}, "spans")
}

func (s *Server) addSpans(c *call) error {
	req := spansRequest{call: c, echo: true}
	if err := c.decode(&req, true); err != nil {
		return err
	}
	var result agl.AddSpansResult
	if len(req.spans) > 0 {
		// Whatever the store does to the slice, the keys that the answer is matched
		// with must stay.
		var err error
		result, err = s.store.AddSpans(c.ctx, agl.AddSpansParams{Spans: slices.Clone(req.spans), IssueSequenceIDs: req.issueSequenceIDs})
		if err != nil {
			return err
		}
	}
	if len(result.Cancelled) > 0 {
		c.markCancelled()
	}
	out := c.out
	if req.echo {
		out = append(out, `{"spans":[`...)
		for i := range result.Stored {
			if i > 0 {
				out = append(out, ',')
			}
			out = result.Stored[i].AppendJSON(out)
		}
	} else {
		out = append(out, `{"stored":[`...)
		out = appendStored(out, req.spans, result.Stored)
	}
	out = append(out, `],"cancelled":[`...)
	for i, id := range result.Cancelled {
		if i > 0 {
			out = append(out, ',')
		}
		out = rawjson.AppendString(out, id)
	}
	return c.send(http.StatusCreated, append(out, "]}"...))
}

// appendStored appends [index,sequence_id] for each span that was stored; the
// stored ones are a subset of those sent, in the same order.
func appendStored(dst []byte, sent, stored []agl.Span) []byte {
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
	return dst
}

type sequenceRequest struct {
	rolloutID, attemptID string
	count                int
}

func (r *sequenceRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	r.count = 1
	return read(dec).Object(func(name []byte) error {
		switch string(name) {
		case "rollout_id":
			return read(dec).String(&r.rolloutID)
		case "attempt_id":
			return read(dec).String(&r.attemptID)
		case "count":
			return rawjson.IntAtLeast(read(dec), &r.count, 1)
		default:
			return dec.SkipValue()
		}
	}, "rollout_id", "attempt_id")
}

func (s *Server) nextSequenceID(c *call) error {
	var req sequenceRequest
	if err := c.decode(&req, true); err != nil {
		return err
	}
	first, err := s.store.ReserveSequenceIDs(c.ctx, agl.ReserveSequenceIDsParams{
		RolloutID: req.rolloutID, AttemptID: req.attemptID, Count: req.count,
	})
	if err != nil {
		return err
	}
	out := strconv.AppendInt(append(c.out, `{"sequence_id":`...), first, 10)
	return c.send(http.StatusOK, append(out, '}'))
}

// sequencesRequest is the body of /spans/next/batch.
type sequencesRequest struct{ attempts []sequenceRequest }

func (r *sequencesRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		if string(name) != "attempts" {
			return dec.SkipValue()
		}
		r.attempts = nil
		return read(dec).List(func() error {
			r.attempts = append(r.attempts, sequenceRequest{})
			return r.attempts[len(r.attempts)-1].UnmarshalJSONFrom(dec)
		})
	}, "attempts")
}

// reservedAtOnce bounds how many reservations of one request are made at once.
const reservedAtOnce = 256

// nextSequenceIDs reserves for several attempts, at once, since stores commit
// together what comes together.
func (s *Server) nextSequenceIDs(c *call) error {
	var req sequencesRequest
	if err := c.decode(&req, true); err != nil {
		return err
	}
	first, errs := make([]int64, len(req.attempts)), make([]error, len(req.attempts))
	for from := 0; from < len(first); from += reservedAtOnce {
		var group sync.WaitGroup
		for i := from; i < min(from+reservedAtOnce, len(first)); i++ {
			group.Go(func() {
				r := &req.attempts[i]
				first[i], errs[i] = s.store.ReserveSequenceIDs(c.ctx, agl.ReserveSequenceIDsParams{
					RolloutID: r.rolloutID, AttemptID: r.attemptID, Count: r.count,
				})
			})
		}
		group.Wait()
	}
	out := c.out
	out = append(out, `{"sequence_ids":[`...)
	for i, id := range first {
		if errs[i] != nil {
			return errs[i]
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, id, 10)
	}
	return c.send(http.StatusOK, append(out, "]}"...))
}

func (s *Server) querySpans(c *call) error  { return s.spanPage(c, false) }
func (s *Server) searchSpans(c *call) error { return s.spanPage(c, true) }

func (s *Server) spanPage(c *call, search bool) error {
	var p agl.QuerySpansParams
	f := newFilters("sequence_id", map[string]*string{
		"attempt_id": &p.AttemptID,
		"trace_id":   &p.TraceID, "trace_id_contains": &p.TraceIDContains,
		"span_id": &p.SpanID, "span_id_contains": &p.SpanIDContains,
		"parent_id": &p.ParentID, "parent_id_contains": &p.ParentIDContains,
		"name": &p.Name, "name_contains": &p.NameContains,
	})
	given := false
	f.lists = func(dec *jsontext.Decoder, name string) (bool, error) {
		if name != "rollout_id" {
			return false, nil
		}
		given = true
		return true, read(dec).String(&p.RolloutID)
	}
	f.queried = func(name string, values []string) error {
		if name == "rollout_id" {
			given, p.RolloutID = true, values[len(values)-1]
		}
		return nil
	}
	if err := c.query(f, search); err != nil {
		return err
	}
	if !given {
		if search {
			return bodyError(c.body, &agl.FieldError{Pointer: "/rollout_id", Type: "missing", Message: "Field required"})
		}
		return validation{"missing", []byte(`["query","rollout_id"]`), "Field required", []byte("null"), nil}.err()
	}
	p.Paging, p.Logic = f.Paging, f.logic
	if s.can.QuerySpansJSON {
		page, err := s.store.QuerySpansJSON(c.ctx, p)
		if err != nil {
			return err
		}
		return sendPage(c, page, func(dst []byte, item *jsontext.Value) []byte { return append(dst, *item...) })
	}
	page, err := s.store.QuerySpans(c.ctx, p)
	if err != nil {
		return err
	}
	return sendPage(c, page, appendItem)
}
