package client

import (
	"context"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpbody"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/rest/internal/wire"
)

// AddSpans implements agl.Store. Many spans take several requests. If one of them fails, the result has the spans
// that the previous requests stored. Spans of a request that was retried because its answer was lost may be stored
// and missing in the result.
func (c *Client) AddSpans(ctx context.Context, p agl.AddSpansParams) (result agl.AddSpansResult, err error) {
	for spans := p.Spans; len(spans) > 0; {
		n, size := c.batch(len(spans), func(i int) int { return estimateSize(&spans[i]) })
		sent := spans[:n]
		spans = spans[n:]
		stored, err := c.addEncoded(ctx, sent, size, p.IssueSequenceIDs)
		if err != nil {
			return result, err
		}
		for _, s := range stored.Stored {
			span := sent[s[0]]
			span.SequenceID = s[1]
			result.Stored = append(result.Stored, span)
		}
		result.Cancelled = append(result.Cancelled, stored.Cancelled...)
	}
	return result, nil
}

// addEncoded encodes spans and sends them in one request.
func (c *Client) addEncoded(ctx context.Context, spans []agl.Span, size int, issue bool) (wire.StoredSpans, error) {
	buffer := c.bodies.take(size)
	defer func() { c.bodies.put(buffer) }()
	ends := make([]int, len(spans)) // growing the buffer moves earlier documents
	for i := range spans {
		buffer = spans[i].AppendJSON(buffer)
		ends[i] = len(buffer)
	}
	documents := make([]jsontext.Value, len(spans))
	start := 0
	for i, end := range ends {
		documents[i], start = buffer[start:end:end], end
	}
	return c.addSpans(ctx, addSpans{name: "AddSpans", documents: documents, issue: issue, key: func(i int) (spandelta.Attempt, string, string) {
		s := &spans[i]
		return spandelta.Attempt{RolloutID: s.RolloutID, AttemptID: s.AttemptID}, s.SpanID, s.Name
	}})
}

// AddSpansJSON implements agl.Store.
func (c *Client) AddSpansJSON(ctx context.Context, p agl.AddSpansJSONParams) (result agl.AddSpansResult, err error) {
	for spans := p.Spans; len(spans) > 0; {
		n, _ := c.batch(len(spans), func(i int) int { return len(spans[i]) })
		sent := spans[:n]
		spans = spans[n:]
		stored, err := c.addSpans(ctx, addSpans{name: "AddSpansJSON", documents: sent, key: func(i int) (spandelta.Attempt, string, string) {
			return keyOf(sent[i])
		}})
		if err != nil {
			return result, err
		}
		result.Cancelled = append(result.Cancelled, stored.Cancelled...)
	}
	return result, nil
}

// batch returns how many of n spans the next request takes, and the size of its body.
func (c *Client) batch(n int, sizeOf func(i int) int) (taken, size int) {
	const envelope = 1 << 10
	size = envelope
	for taken < min(n, c.config.SpanBatch) {
		next := sizeOf(taken) + len(",")
		if taken > 0 && size+next > c.config.SpanBatchBytes {
			break
		}
		taken++
		size += next
	}
	return taken, size
}

// estimateSize estimates the length of a span's JSON. Growing a body of megabytes step by step costs more than writing it.
func estimateSize(s *agl.Span) int {
	const others = 1 << 10 // names, ids and times
	size := others + len(s.Attributes) + len(s.Resource.Attributes) + len(s.Extra)
	for i := range s.Events {
		size += len(s.Events[i].Attributes)
	}
	return size
}

// addSpans is a request with spans.
type addSpans struct {
	name      string           // of the Go method
	documents []jsontext.Value // the spans in their wire form
	issue     bool             // issue sequence ids
	key       func(i int) (attempt spandelta.Attempt, id, name string)
}

// body returns the body in JSON, which shares the memory of the documents.
func (a *addSpans) body() *httpbody.Body {
	at := 0
	head := wire.AppendSpans(nil, a.issue, func(dst []byte) []byte {
		at = len(dst) + len("[")
		return append(dst, "[]"...)
	})
	parts, comma := [][]byte{head[:at]}, []byte(",")
	for i, document := range a.documents {
		if i > 0 {
			parts = append(parts, comma)
		}
		parts = append(parts, document)
	}
	return httpbody.New(append(parts, head[at:])...)
}

// addSpans sends a request: in the short form if the server accepts it, otherwise in JSON.
func (c *Client) addSpans(ctx context.Context, a addSpans) (stored wire.StoredSpans, err error) {
	if stored, taken, err := c.addShort(ctx, &a); taken || err != nil {
		return stored, err
	}
	body := a.body()
	defer body.Free()
	op := operation{name: a.name, method: http.MethodPost, path: wire.SpansBatch, shared: body}
	continues := !c.short.taken.Load() || c.short.worth(&a) // else the server need not remember the spans
	if continues {
		op.spanForm = wire.SpanDeltas
	}
	err = c.do(ctx, op, func(header http.Header, body []byte) error {
		if continues {
			c.short.known(header)
		}
		return stored.Read(body, len(a.documents))
	})
	if err == nil && continues {
		c.short.sent(&a)
	}
	return stored, err
}

// QuerySpans implements agl.Store.
func (c *Client) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	return search[agl.Span](ctx, c, "QuerySpans", wire.SearchSpans, wire.QuerySpans(&agl.QueryShortSpansParams{QuerySpansParams: p}))
}

// QuerySpansJSON implements agl.Store.
func (c *Client) QuerySpansJSON(ctx context.Context, p agl.QuerySpansParams) (agl.Page[jsontext.Value], error) {
	return search[jsontext.Value](ctx, c, "QuerySpansJSON", wire.SearchSpans, wire.QuerySpans(&agl.QueryShortSpansParams{QuerySpansParams: p}))
}

// QueryShortSpans implements agl.Store. An older server sends whole spans.
func (c *Client) QueryShortSpans(ctx context.Context, p agl.QueryShortSpansParams) (agl.ShortSpans, error) {
	answer, err := post[wire.SpansInShort](ctx, c, "QueryShortSpans", wire.SearchSpans, "", wire.QuerySpans(&p))
	return answer.ShortSpans, err
}

// ReserveSequenceIDs implements agl.Store. A retry after a lost answer leaves a gap.
func (c *Client) ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (first int64, err error) {
	answer, err := post[wire.SequenceID](ctx, c, "ReserveSequenceIDs", wire.NextSequenceID, "", wire.ReserveSequenceIDs(&p))
	return answer.First, err
}

// ReserveSequenceIDsOf implements agl.Store.
func (c *Client) ReserveSequenceIDsOf(ctx context.Context, p []agl.ReserveSequenceIDsParams) (first []int64, err error) {
	answer, err := post[wire.SequenceIDs](ctx, c, "ReserveSequenceIDsOf", wire.NextSequenceIDsBatch, "", wire.ReserveSequenceIDsOf(&p))
	if err == nil && len(answer.First) != len(p) {
		err = agl.Errorf(agl.CodeInternal, "sequence_ids: got %d, must be one for each of the %d attempts", len(answer.First), len(p))
	}
	return answer.First, err
}
