package rest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// AddSpans implements agl.Store. Many spans go in several requests; when one of
// them fails, those before it are stored and part of the result. Spans of a
// request whose answer was lost are there when it is repeated, and then not
// among those that the result calls new.
func (c *Client) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	var result agl.AddSpansResult
	for rest := p.Spans; len(rest) > 0; {
		body := rawjson.NewObject(make([]byte, 0, spansSize(rest, c.config.SpanBatch, c.config.SpanBatchBytes)+spansEnvelope))
		body.Bool("issue_sequence_ids", p.IssueSequenceIDs)
		body.Bool("echo", false)
		body.Key("spans")
		body = append(body, '[')
		n := 0
		for n < len(rest) && n < c.config.SpanBatch && (n == 0 || len(body) < c.config.SpanBatchBytes) {
			if n > 0 {
				body = append(body, ',')
			}
			body = rest[n].AppendJSON(body)
			n++
		}
		body = append(body, ']')
		sent := rest[:n]
		rest = rest[n:]
		stored := storedSpans{sent: len(sent)}
		x := exchange{op: "AddSpans", method: http.MethodPost, path: "/spans/batch", body: body.End()}
		if err := c.do(ctx, x, decodeAnswer(&stored)); err != nil {
			return result, err
		}
		for _, s := range stored.spans {
			span := sent[s.index]
			span.SequenceID = s.sequenceID
			result.Stored = append(result.Stored, span)
		}
		result.Cancelled = append(result.Cancelled, stored.cancelled...)
	}
	return result, nil
}

// AddSpansJSON implements agl.Store. It sends the documents from where they are,
// and neither reads nor keeps them once it has returned.
func (c *Client) AddSpansJSON(ctx context.Context, p agl.AddSpansJSONParams) (result agl.AddSpansResult, err error) {
	for spans := p.Spans; len(spans) > 0; {
		list := [][]byte{[]byte(`{"issue_sequence_ids":false,"echo":false,"spans":[`)}
		n, size := 0, 0
		for n < len(spans) && n < c.config.SpanBatch && (n == 0 || size < c.config.SpanBatchBytes) {
			if n > 0 {
				list = append(list, []byte{','})
			}
			list = append(list, spans[n])
			size += len(spans[n])
			n++
		}
		body := &parts{list: append(list, []byte("]}"))}
		spans = spans[n:]
		stored := storedSpans{sent: n}
		err := c.do(ctx, exchange{op: "AddSpansJSON", method: http.MethodPost, path: "/spans/batch", parts: body}, decodeAnswer(&stored))
		body.end()
		if err != nil {
			return result, err
		}
		result.Cancelled = append(result.Cancelled, stored.cancelled...)
	}
	return result, nil
}

// parts are a request's body that is not in one piece. A transport may go on to
// read a body after the answer has come; it gets nothing more once end is called.
type parts struct {
	mu   sync.Mutex
	list [][]byte // nil when the request is over
}

func (p *parts) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = nil
}

func (p *parts) size() (n int64) {
	for _, part := range p.list {
		n += int64(len(part))
	}
	return n
}

// open returns a body that reads the parts from their beginning.
func (p *parts) open() io.ReadCloser { return &partsReader{parts: p} }

type partsReader struct {
	*parts

	part, at int // where it reads on
}

func (r *partsReader) Read(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list == nil {
		return 0, errRequestOver
	}
	for n < len(p) && r.part < len(r.list) {
		copied := copy(p[n:], r.list[r.part][r.at:])
		n += copied
		if r.at += copied; r.at == len(r.list[r.part]) {
			r.part, r.at = r.part+1, 0
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (r *partsReader) Close() error { return nil }

// writeAll writes what is left to a connection from where it is.
func (r *partsReader) writeAll(conn *net.TCPConn) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list == nil {
		return 0, errRequestOver
	}
	left := net.Buffers(slices.Clone(r.list[r.part:]))
	if len(left) > 0 {
		left[0] = left[0][r.at:]
	}
	r.part, r.at = len(r.list), 0
	return left.WriteTo(conn)
}

// partsConn is a connection that takes parts without a copy: net/http would read
// them in pieces of 32 KiB and make a system call for each.
type partsConn struct{ *net.TCPConn }

// ReadFrom is what net/http calls with the bytes of a body that its buffer has no
// room for, up to the body's length, which is that of the parts. What net/http
// hands over in another way is copied.
func (c partsConn) ReadFrom(r io.Reader) (int64, error) {
	if limited, ok := r.(*io.LimitedReader); ok {
		if body, ok := limited.R.(*partsReader); ok {
			return body.writeAll(c.TCPConn)
		}
	}
	return c.TCPConn.ReadFrom(r)
}

var errRequestOver = errors.New("the request is over")

// spansEnvelope is room for what stands around the spans of a request.
const spansEnvelope = 64

// spansSize is about how long the JSON of the next request's spans is. Growing a
// body of megabytes step by step costs more than writing it.
func spansSize(spans []agl.Span, most, bytes int) int {
	const members = 1 << 10 // names, ids and times of a span
	size := 0
	for i := 0; i < min(len(spans), most) && size < bytes; i++ {
		s := &spans[i]
		size += members + len(s.Attributes) + len(s.Resource.Attributes) + len(s.Extra)
		for j := range s.Events {
			size += len(s.Events[j].Attributes)
		}
	}
	return size
}

// storedSpans is the answer of /spans/batch without echo.
type storedSpans struct {
	sent  int
	spans []struct {
		index      int
		sequenceID int64
	}
	cancelled []string
}

func (s *storedSpans) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		switch string(name) {
		case "stored":
			return read(dec).List(func() error {
				var pair []int
				if err := read(dec).List(func() error {
					var i int
					err := rawjson.Int(read(dec), &i)
					pair = append(pair, i)
					return err
				}); err != nil {
					return err
				}
				if len(pair) != 2 || pair[0] < 0 || pair[0] >= s.sent {
					return agl.Errorf(agl.CodeInternal, "stored: got %v, must be [index, sequence_id] of one of the %d spans sent", pair, s.sent)
				}
				s.spans = append(s.spans, struct {
					index      int
					sequenceID int64
				}{pair[0], int64(pair[1])})
				return nil
			})
		case "cancelled":
			return read(dec).Strings(&s.cancelled)
		default:
			return dec.SkipValue()
		}
	})
}

// QuerySpans implements agl.Store.
func (c *Client) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	return search[agl.Span](ctx, c, "QuerySpans", "/spans/search", spanQuery(p))
}

// QuerySpansJSON implements agl.Store.
func (c *Client) QuerySpansJSON(ctx context.Context, p agl.QuerySpansParams) (agl.Page[jsontext.Value], error) {
	found, err := search[rawDocument](ctx, c, "QuerySpans", "/spans/search", spanQuery(p))
	page := agl.Page[jsontext.Value]{Limit: found.Limit, Offset: found.Offset, Total: found.Total}
	for _, item := range found.Items {
		page.Items = append(page.Items, jsontext.Value(item))
	}
	return page, err
}

// rawDocument keeps a document's bytes.
type rawDocument jsontext.Value

func (r *rawDocument) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Raw((*jsontext.Value)(r))
}

func spanQuery(p agl.QuerySpansParams) []byte {
	body := newObject()
	body.String("rollout_id", p.RolloutID)
	for _, f := range [...]struct{ name, value string }{
		{"attempt_id", p.AttemptID},
		{"trace_id", p.TraceID}, {"trace_id_contains", p.TraceIDContains},
		{"span_id", p.SpanID}, {"span_id_contains", p.SpanIDContains},
		{"parent_id", p.ParentID}, {"parent_id_contains", p.ParentIDContains},
		{"name", p.Name}, {"name_contains", p.NameContains},
		{"filter_logic", string(p.Logic)},
	} {
		body.NonEmpty(f.name, f.value)
	}
	paging(&body, p.Paging)
	return body.End()
}

// ReserveSequenceIDs implements agl.Store. A repeat after a lost answer leaves
// a gap.
func (c *Client) ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (first int64, err error) {
	var id sequenceID
	x := exchange{op: "ReserveSequenceIDs", method: http.MethodPost, path: "/spans/next", body: appendReservation(nil, p)}
	err = c.do(ctx, x, decodeAnswer(&id))
	return int64(id), err
}

func appendReservation(dst []byte, p agl.ReserveSequenceIDsParams) []byte {
	o := rawjson.NewObject(dst)
	o.String("rollout_id", p.RolloutID)
	o.String("attempt_id", p.AttemptID)
	if p.Count != 0 {
		o.Int("count", int64(p.Count))
	}
	return o.End()
}

// ReserveSequenceIDsOf implements agl.Store.
func (c *Client) ReserveSequenceIDsOf(ctx context.Context, attempts []agl.ReserveSequenceIDsParams) (first []int64, err error) {
	body := rawjson.NewObject(make([]byte, 0, 128*(1+len(attempts))))
	body.Key("attempts")
	body = rawjson.AppendArray(body, attempts, appendReservation)
	var ids sequenceIDs
	x := exchange{op: "ReserveSequenceIDsOf", method: http.MethodPost, path: "/spans/next/batch", body: body.End()}
	if err := c.do(ctx, x, decodeAnswer(&ids)); err != nil {
		return nil, err
	}
	if len(ids) != len(attempts) {
		return nil, agl.Errorf(agl.CodeInternal, "sequence_ids: got %d, must be one for each of the %d attempts", len(ids), len(attempts))
	}
	return ids, nil
}

type sequenceIDs []int64

func (s *sequenceIDs) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		if string(name) != "sequence_ids" {
			return dec.SkipValue()
		}
		return read(dec).List(func() error {
			var id int
			err := rawjson.Int(read(dec), &id)
			*s = append(*s, int64(id))
			return err
		})
	})
}

type sequenceID int

func (s *sequenceID) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		if string(name) == "sequence_id" {
			return rawjson.Int(read(dec), (*int)(s))
		}
		return dec.SkipValue()
	})
}
