package tracer

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// Transport is an [http.RoundTripper] that records the model calls of an
// attempt: OpenAI chat completions, streamed or not. Requests and replies pass
// through byte for byte as they come. Each call becomes a span named
// openai.chat.completion, with one child per tool call that the model asks for,
// and is queued before the agent sees the end of the reply.
//
// A request whose context carries no trace, or of another kind, just passes.
//
//	client := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: &tracer.Transport{}}))
type Transport struct {
	// Base sends the requests; nil is [http.DefaultTransport].
	Base http.RoundTripper
	// MaxCaptureBytes bounds what is recorded of a request and of a reply; the
	// attribute agentlightning.capture.truncated marks a longer one. 0 is 16 MiB.
	MaxCaptureBytes int64
}

const attrTruncated = "agentlightning.capture.truncated"

// RoundTrip sends the request and records the call.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	trace, ok := FromContext(req.Context())
	if !ok || trace.ended.Load() || req.Body == nil || req.Method != http.MethodPost ||
		!strings.HasSuffix(strings.TrimRight(req.URL.Path, "/"), "/chat/completions") {
		return base.RoundTrip(req)
	}
	limit := t.MaxCaptureBytes
	if limit <= 0 {
		limit = 16 << 20
	}
	c := &chatCall{trace: trace, parent: trace.parentOf(req.Context()), start: time.Now(), done: req.Context().Err}
	out, err := c.captureRequest(req, limit)
	if err != nil {
		return nil, err
	}
	resp, err := base.RoundTrip(out)
	if err != nil {
		c.finish(err)
		return nil, err
	}
	c.status, c.encoding = resp.StatusCode, resp.Header.Get("Content-Encoding")
	c.streamed = strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	resp.Body = &capturedBody{ReadCloser: resp.Body, call: c, left: limit}
	return resp, nil
}

// chatCall is what is known of one model call.
type chatCall struct {
	trace     *Trace
	parent    string
	start     time.Time
	done      func() error // the error of the request's context
	request   []byte
	reply     bytes.Buffer
	truncated bool
	status    int // 0 when there was no reply
	encoding  string
	streamed  bool
}

// captureRequest returns a request that sends the same bytes, and keeps them.
func (c *chatCall) captureRequest(req *http.Request, limit int64) (*http.Request, error) {
	body, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	if err != nil {
		return nil, errors.Join(err, req.Body.Close())
	}
	out := req.Clone(req.Context())
	if int64(len(body)) > limit {
		c.truncated = true
		out.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), req.Body), req.Body}
		return out, nil
	}
	if err := req.Body.Close(); err != nil {
		return nil, err
	}
	c.request = body
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	out.Body, err = out.GetBody()
	return out, err
}

// capturedBody is a reply's body that keeps what passes, and records the call
// when the body ends or is closed, which may be while it is being read.
type capturedBody struct {
	io.ReadCloser

	mu    sync.Mutex
	call  *chatCall
	left  int64
	ended bool
}

func (b *capturedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return n, err
	}
	keep := min(int64(n), b.left)
	b.call.reply.Write(p[:keep])
	b.left -= keep
	if keep < int64(n) {
		b.call.truncated = true
	}
	if err != nil {
		b.end(err)
	}
	return n, err
}

func (b *capturedBody) Close() error {
	err := b.ReadCloser.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(nil)
	return err
}

// end records the call, once. It is called with mu held.
func (b *capturedBody) end(err error) {
	if !b.ended {
		b.ended = true
		b.call.finish(err)
	}
}

// replyBytes returns the captured reply, unpacked.
func (c *chatCall) replyBytes() []byte {
	if c.encoding != "gzip" {
		return c.reply.Bytes()
	}
	const most = 64 << 20
	r, err := gzip.NewReader(&c.reply)
	if err != nil {
		return nil
	}
	// What could be unpacked is worth recording even if the end is missing.
	plain, _ := io.ReadAll(io.LimitReader(r, most))
	return plain
}

// finish records the call. err is how the exchange ended: nil and io.EOF are
// well.
func (c *chatCall) finish(err error) {
	end := time.Now()
	reply, failure := c.outcome(err)
	var typed *agl.OutcomeError
	if failure != nil {
		typed = failure.typed
	}
	c.trace.failure.Store(typed)

	attrs := chatRequestAttrs(c.request)
	if c.status != 0 {
		attrs = append(attrs, agl.Attr{Key: "http.response.status_code", Value: c.status})
	}
	attrs = append(attrs, reply.attrs()...)
	if c.truncated {
		attrs = append(attrs, agl.Attr{Key: attrTruncated, Value: true})
	}
	draft := agl.SpanDraft{
		Name: agl.SpanChatCompletion, SpanID: newID(8), TraceID: c.trace.TraceID(), ParentID: c.parent,
		StartTime: agl.TimestampOf(c.start), EndTime: agl.TimestampOf(end),
		Status: agl.SpanStatus{Code: agl.StatusOK},
	}
	if failure != nil {
		draft.Status = agl.SpanStatus{Code: agl.StatusError, Description: agl.Some(failure.cause.Error())}
		if event, err := exceptionEvent(failure.cause, end); err == nil {
			draft.Events = []agl.SpanEvent{event}
		}
	}
	c.record(draft, attrs)
	for _, tool := range reply.toolCalls() {
		c.record(agl.SpanDraft{
			Name: "tool_call." + tool.name, TraceID: draft.TraceID, ParentID: draft.SpanID,
			StartTime: draft.EndTime, Status: agl.SpanStatus{Code: agl.StatusOK},
		}, tool.spanAttrs())
	}
}

func (c *chatCall) record(d agl.SpanDraft, attrs []agl.Attr) {
	var err error
	if d.Attributes, err = agl.NewAttributes(attrs...); err == nil {
		err = c.trace.record(d)
	}
	if err != nil {
		c.trace.tracer.cfg.Logger.Warn("model call is not recorded", "rollout_id", c.trace.rolloutID,
			"attempt_id", c.trace.attemptID, "span", d.Name, "error", err)
	}
}
