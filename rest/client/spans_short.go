package client

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpbody"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/rest/internal/wire"
)

// shortSpans remembers which spans the server has, so that later ones can be sent as what they add. See
// [wire.SpanForm].
type shortSpans struct {
	from  int         // the size of a span from which it is shortened, in bytes
	taken atomic.Bool // the server accepts the short form
	once  sync.Once
	heads *spandelta.Heads // nil until the server has accepted it
}

// known notes, from the answer to a request in JSON, whether the server accepts the short form.
func (s *shortSpans) known(answer http.Header) {
	takes := answer.Get(wire.SpanForm) == wire.SpanDeltas
	if takes {
		s.once.Do(func() { s.heads = spandelta.NewHeads(spandelta.NewCodec(), spandelta.DefaultMemory) })
	}
	s.taken.Store(takes)
}

// layout returns the layout of a span that is shortened or that later ones may continue, nil for one that stays whole.
func (s *shortSpans) layout(document []byte) *spandelta.Layout {
	if len(document) < s.from {
		return nil
	}
	return s.heads.Layout(document)
}

// worth reports whether a request has a span that may be shortened.
func (s *shortSpans) worth(a *addSpans) bool {
	return slices.ContainsFunc(a.documents, func(document jsontext.Value) bool { return len(document) >= s.from })
}

// sent remembers spans that were sent whole.
func (s *shortSpans) sent(a *addSpans) {
	if !s.taken.Load() {
		return
	}
	batch := s.heads.Begin()
	for i, document := range a.documents {
		document = bytes.TrimSpace(document) // as the server sees it
		if layout := s.layout(document); layout != nil {
			if attempt, id, name := a.key(i); id != "" {
				batch.Add(attempt, id, name, document, layout)
			}
		}
	}
	batch.Commit()
}

// shorten returns the spans of a request in the short form.
func (s *shortSpans) shorten(a *addSpans) (short []wire.ShortSpan, batch *spandelta.Batch) {
	batch = s.heads.Begin()
	short = make([]wire.ShortSpan, len(a.documents))
	for i, document := range a.documents {
		document = bytes.TrimSpace(document)
		short[i].Bytes = document
		layout := s.layout(document)
		if layout == nil {
			continue
		}
		attempt, id, name := a.key(i)
		if id == "" {
			continue
		}
		if base, delta := batch.Add(attempt, id, name, document, layout); base != nil {
			short[i] = wire.ShortSpan{Bytes: delta, Base: &wire.SpanBase{Attempt: attempt, ID: base.ID, Size: base.Layout.Size(), Sum: base.Layout.Sum()}}
		}
	}
	return short, batch
}

// forget drops what the server may have of the attempts in a request.
func (s *shortSpans) forget(a *addSpans) {
	for i := range a.documents {
		attempt, _, _ := a.key(i)
		s.heads.Forget(attempt)
	}
}

// addShort sends a request in the short form. taken is false if that is not possible or saves nothing: nothing was
// stored, and the request must be sent in JSON.
func (c *Client) addShort(ctx context.Context, a *addSpans) (stored wire.StoredSpans, taken bool, err error) {
	if !c.short.taken.Load() || !c.short.worth(a) {
		return stored, false, nil
	}
	short, batch := c.short.shorten(a)
	size := 1 << 10
	for i := range short {
		const base = 128
		size += base + len(short[i].Bytes)
	}
	buffer := wire.AppendShortSpans(c.bodies.take(size), a.issue, short)
	defer c.bodies.put(buffer)
	body := httpbody.New(buffer)
	defer body.Free()
	op := operation{name: a.name, method: http.MethodPost, path: wire.SpansBatch, shared: body, media: wire.ShortSpans}
	err = c.do(ctx, op, func(_ http.Header, body []byte) error { return stored.Read(body, len(a.documents)) })
	switch {
	case err == nil:
		batch.Commit()
		return stored, true, nil
	case ctx.Err() == nil && refused(err):
		c.short.forget(a)
		return wire.StoredSpans{}, false, nil
	default:
		return stored, true, err
	}
}

// refused reports whether the server may answer differently to the same spans in JSON: it lacks a base, no longer
// knows the form, or rejects a span.
func refused(err error) bool {
	switch agl.ErrorCode(err) {
	case wire.CodeUnknownBase, agl.CodeInvalid, agl.CodeUnimplemented, agl.CodeNotFound, agl.CodeIllegalState, agl.CodeConflict:
		return true
	default:
		return false
	}
}

// keyOf reads the ids and the name from a span's wire form. The id is empty if they cannot be read.
func keyOf(document []byte) (attempt spandelta.Attempt, id, name string) {
	found := 0
	rawjson.WalkMembers(document, 0, func(m rawjson.Member) int {
		var to *string
		switch string(m.Name) {
		case "rollout_id":
			to = &attempt.RolloutID
		case "attempt_id":
			to = &attempt.AttemptID
		case "span_id":
			to = &id
		case "name":
			to = &name
		}
		end := rawjson.SkipValue(document, m.ValueStart)
		if to == nil || end < 0 {
			return end
		}
		value := document[m.ValueStart:end]
		if value[0] != '"' {
			return -1
		}
		*to = rawjson.Unquote(value)
		if found++; found == 4 {
			return -1
		}
		return end
	})
	if found < 4 {
		return attempt, "", ""
	}
	return attempt, id, name
}
