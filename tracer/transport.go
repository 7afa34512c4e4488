package tracer

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/modelerror"
	"github.com/agl-go/agl/internal/randomid"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/record"
)

// Transport is an [http.RoundTripper] that records the model calls of an attempt, streamed or not: Chat Completions,
// Completions and Responses of OpenAI, and Messages of Anthropic. Requests and replies pass through byte for byte.
// Each call becomes a span named openai.chat.completion, whatever its API, so that adapters find it; messages, tools
// and choices are described as those of a chat completion, and gen_ai.system and gen_ai.operation.name say which API
// it was. It has one child for each tool call that the model asks for. The span is queued before the agent sees the
// end of the reply.
//
// Requests without a trace in their context, and other requests, only pass through.
//
//	client := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: &tracer.Transport{}}))
type Transport struct {
	// Base sends the requests; nil is [http.DefaultTransport].
	Base http.RoundTripper
	// MaxCaptureBytes bounds what is recorded of a request and of a reply. The attribute
	// agentlightning.capture.truncated marks a longer one, and a reply that is compressed by something other than gzip.
	// 0 is 16 MiB.
	MaxCaptureBytes int64
}

const attrTruncated = "agentlightning.capture.truncated"

// RoundTrip sends the request and records the call.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := cmp.Or(t.Base, http.DefaultTransport)
	trace, ok := FromContext(req.Context())
	form := formOf(req.URL.Path)
	if !ok || trace.ended.Load() || req.Body == nil || req.Method != http.MethodPost || form == "" {
		return base.RoundTrip(req)
	}
	limit := t.MaxCaptureBytes
	if limit <= 0 {
		limit = 16 << 20
	}
	c := &modelCall{form: form, trace: trace, parent: trace.parentOf(req.Context()), start: time.Now(), ctxErr: req.Context().Err}
	out, err := c.captureRequest(req, limit)
	if err != nil {
		return nil, err
	}
	if !c.truncated && isOtherAPI(form, c.request) {
		return base.RoundTrip(out)
	}
	resp, err := base.RoundTrip(out)
	if err != nil {
		c.finish(err)
		return nil, err
	}
	c.status, c.encoding, c.location = resp.StatusCode, resp.Header.Get("Content-Encoding"), resp.Header.Get("Location")
	c.streamed = strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "text/event-stream")
	resp.Body = &capturedBody{ReadCloser: resp.Body, call: c, left: limit}
	return resp, nil
}

// formOf returns the API of a path; empty for others.
func formOf(path string) record.Form {
	path = strings.TrimRight(path, "/")
	for _, api := range []struct {
		suffix string
		form   record.Form
	}{
		{"/chat/completions", record.Chat}, // first: it ends with the next one's suffix
		{"/completions", record.Completion},
		{"/responses", record.Responses},
		{"/messages", record.Messages},
	} {
		if strings.HasSuffix(path, api.suffix) {
			return api.form
		}
	}
	return ""
}

// isOtherAPI reports whether a request is for another service whose path also ends in /messages or /responses, such as that
// of a chat room.
func isOtherAPI(form record.Form, body []byte) bool {
	var members []string // a model call has one of them
	switch form {
	case record.Messages:
		members = []string{"messages"}
	case record.Responses:
		members = []string{"model", "prompt"}
	case record.Chat, record.Completion:
		return false
	}
	return isObject(body) && !slices.ContainsFunc(members, func(name string) bool {
		_, has := rawjson.Get(body, name)
		return has
	})
}

// ModelFailure returns how the last model call of the trace in ctx failed; nil if it did not, or if there was none.
// It lets a runner distinguish a failure of the agent from one of its model, whatever SDK the agent uses. A call that
// the server rejected as malformed is a failure of the agent: it returns nil.
func ModelFailure(ctx context.Context) *agl.OutcomeError {
	if t, ok := FromContext(ctx); ok {
		return t.failure.Load()
	}
	return nil
}

// modelCall is the record of one model call.
type modelCall struct {
	form      record.Form
	trace     *Trace
	parent    string
	start     time.Time
	ctxErr    func() error // of the request's context
	request   []byte
	reply     bytes.Buffer
	truncated bool
	status    int    // 0 when there was no reply
	location  string // of a redirect
	encoding  string
	streamed  bool
}

// captureRequest keeps the body and returns a request that sends the same bytes.
func (c *modelCall) captureRequest(req *http.Request, limit int64) (*http.Request, error) {
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

// capturedBody is a reply's body that keeps what is read. It records the call when
// the body ends or is closed, which may happen during a read.
type capturedBody struct {
	io.ReadCloser

	mu    sync.Mutex
	call  *modelCall
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

// replyBytes returns the captured reply, decompressed. A reply that cannot be decompressed here counts as truncated: the
// model is not to blame.
func (c *modelCall) replyBytes() []byte {
	switch strings.ToLower(c.encoding) {
	case "", "identity":
		return c.reply.Bytes()
	case "gzip":
	default:
		c.truncated = true
		return nil
	}
	const most = 64 << 20
	r, err := gzip.NewReader(&c.reply)
	if err != nil {
		return nil
	}
	// The beginning is worth recording even if the end is missing.
	plain, _ := io.ReadAll(io.LimitReader(r, most))
	c.truncated = c.truncated || len(plain) == most
	return plain
}

// outcome reads the reply and returns why the call failed, if it did: an [agl.OutcomeError] if the model is to blame.
// err is how the exchange ended: nil and io.EOF are successes.
func (c *modelCall) outcome(err error) (modelReply, error) {
	body := c.replyBytes()
	if begins, _ := openai.BeginsStream(body); begins && !c.streamed { // SDKs ignore the Content-Type, which many hand-written servers have wrong
		asked, _ := rawjson.Get(c.request, "stream")
		c.streamed = string(asked) == "true"
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF) && (!c.streamed || !openai.CompleteStream(body)):
		var reply modelReply
		if c.streamed {
			reply, _ = parseReply(c.form, body, true) // err is the better reason
		}
		if c.ctxErr() != nil || agl.IsContextError(err) {
			return reply, err
		}
		return reply, modelFailure(err)
	case c.status >= http.StatusBadRequest:
		return modelReply{}, statusFailure(c.status, body)
	case c.status >= http.StatusMultipleChoices:
		// The model's address is wrong, not the agent. A client that follows the redirect calls again, and only its last call counts.
		return modelReply{}, modelFailure(fmt.Errorf("HTTP %d %s to %.300q: the base URL must be the one that answers itself", c.status, http.StatusText(c.status), c.location))
	}
	reply, parseErr := parseReply(c.form, body, c.streamed)
	if parseErr != nil && !c.truncated && err != nil { // the whole reply arrived
		return reply, modelFailure(parseErr)
	}
	return reply, nil
}

// modelFailure returns an error that blames the model for a failed call.
func modelFailure(cause error) error {
	return &agl.OutcomeError{Kind: agl.OutcomeModelError, Err: cause}
}

// statusFailure classifies an error reply.
func statusFailure(status int, body []byte) error {
	o := modelerror.Outcome(status, body)
	cause := fmt.Errorf("HTTP %d %s: %s", status, http.StatusText(status), o.Message)
	if o.Kind == "" {
		return cause
	}
	return &agl.OutcomeError{Kind: o.Kind, Err: cause}
}

// finish records the call; err is that of outcome.
func (c *modelCall) finish(err error) {
	end := time.Now()
	reply, failure := c.outcome(err)
	blamed, ok := errors.AsType[*agl.OutcomeError](failure)
	if ok {
		failure = blamed.Err
	}
	c.trace.failure.Store(blamed)

	attrs := requestAttrs(c.form, c.request)
	if c.status != 0 {
		attrs = append(attrs, agl.Attr{Key: "http.response.status_code", Value: c.status})
	}
	attrs = append(attrs, reply.attrs()...)
	if c.truncated {
		attrs = append(attrs, agl.Attr{Key: attrTruncated, Value: true})
	}
	draft := agl.SpanDraft{
		Name: agl.SpanChatCompletion, SpanID: randomid.Hex(8), TraceID: c.trace.TraceID(), ParentID: c.parent,
		StartTime: agl.TimestampOf(c.start), EndTime: agl.TimestampOf(end),
		Status: agl.SpanStatus{Code: agl.StatusOK},
	}
	if failure != nil {
		draft.Status = agl.SpanStatus{Code: agl.StatusError, Description: agl.Some(failure.Error())}
		if event, err := exceptionEvent(failure, end); err == nil {
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

func (c *modelCall) record(d agl.SpanDraft, attrs []agl.Attr) {
	var err error
	if d.Attributes, err = agl.NewAttributes(attrs...); err == nil {
		err = c.trace.record(d)
	}
	if err != nil {
		c.trace.logger.Warn("model call is not recorded", "span", d.Name, "error", err)
	}
}
