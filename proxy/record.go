package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/go-json-experiment/json/jsontext"
)

// spansPerCall is how many spans record a call: the request to the proxy, the
// model call in it, and the raw exchange with the backend.
const spansPerCall = 3

// Attributes of the model call's span that are the proxy's own.
const (
	// AttrDelivered is false when the agent left before it had the whole reply.
	AttrDelivered = "agentlightning.proxy.delivered"
	// AttrDriftIndex is the first index at which the prompt's ids part from the
	// ids of the attempt's previous call, prompt and reply; -1 when they extend
	// them. It is absent when there is nothing to compare.
	AttrDriftIndex = "agentlightning.proxy.drift_index"
	// AttrBackend is the base URL that served the call.
	AttrBackend = "agentlightning.proxy.backend"
	// AttrFirstByteSeconds and AttrTotalSeconds are the times from forwarding to
	// the backend's first and last byte, AttrQueueSeconds the one before
	// forwarding.
	AttrQueueSeconds     = "agentlightning.proxy.queue_seconds"
	AttrFirstByteSeconds = "agentlightning.proxy.first_byte_seconds"
	AttrTotalSeconds     = "agentlightning.proxy.total_seconds"
	// AttrErrorSource is SourceGateway or SourceProvider, for a call that failed.
	AttrErrorSource = "agentlightning.proxy.error_source"
	// AttrTries is how often the request was sent, where that is more than once.
	AttrTries = "agentlightning.proxy.tries"
	// AttrCached says that the reply came from the proxy's cache.
	AttrCached = "agentlightning.proxy.cached"
	// AttrOutcome is the outcome that the call brings about for its attempt:
	// "budget" when there was none left for it.
	AttrOutcome = "agentlightning.proxy.outcome"
	// AttrReplyCut says that the reply was too long to be recorded whole.
	AttrReplyCut = "agentlightning.proxy.reply_cut"
	// AttrRequestText and AttrReplyText hold a body that is not JSON.
	AttrRequestText = "agentlightning.proxy.request_text"
	AttrReplyText   = "agentlightning.proxy.reply_text"
	// AttrVersionSpans is the engine's own word on which weights sampled which
	// tokens of the first choice: a JSON list of {"version","start","end"}, half
	// open and counted in tokens of the reply, as SGLang gives it.
	AttrVersionSpans = "agentlightning.model.version_spans"
)

const (
	attrStreaming = "llm.is_streaming"
	// rawPrefix is what readers of these spans look for, whoever the provider is.
	rawPrefix  = "llm.hosted_vllm"
	attrMethod = "http.request.method"
	attrPath   = "url.path"
	attrStatus = "http.response.status_code"
	tracerName = "agl.proxy"
)

// builder turns calls into spans. It belongs to one goroutine.
type builder struct {
	ledger *ledger
}

func newBuilder(l *ledger) *builder { return &builder{ledger: l} }

func (b *builder) build(c *call) []agl.Span {
	x := b.read(c)
	ids := newSpanIDs()
	attempt := c.attempt
	status := agl.SpanStatus{Code: agl.StatusOK}
	if c.fault != "" {
		description := c.fault
		if x.message != "" {
			description += ": " + x.message
		}
		status = agl.SpanStatus{Code: agl.StatusError, Description: agl.Some(description)}
	}
	resource := newAttrs(192)
	resource.text("service.name", "agl-proxy")
	resource.text(agl.AttrTracerName, tracerName)
	resource.text(agl.AttrRolloutID, attempt.rollout.id)
	resource.text(agl.AttrAttemptID, attempt.id)
	resource.integer(agl.AttrSpanSequenceID, c.sequence)
	base := agl.Span{
		RolloutID: attempt.rollout.id, AttemptID: attempt.id, SequenceID: c.sequence, TraceID: ids.trace,
		Status: status, Resource: agl.SpanResource{Attributes: resource.done()},
	}
	span := func(i int, name string, a *attrs, start, end time.Time) agl.Span {
		s := base
		s.Name, s.SpanID, s.Attributes = name, ids.spans[i], a.done()
		s.Context = &agl.SpanContext{TraceID: ids.trace, SpanID: s.SpanID}
		if i > 0 {
			s.ParentID = agl.Some(ids.spans[i-1])
			s.Parent = &agl.SpanContext{TraceID: ids.trace, SpanID: ids.spans[i-1]}
		}
		s.StartTime, s.EndTime = agl.Some(agl.TimestampOf(start)), agl.Some(agl.TimestampOf(end))
		return s
	}
	root := newAttrs(256)
	root.text(attrMethod, c.method)
	root.text(attrPath, c.path)
	if c.status > 0 {
		root.integer(attrStatus, int64(c.status))
	}
	sent, last := c.sent, c.lastByte
	if sent.IsZero() {
		sent = c.end
	}
	if last.IsZero() {
		last = c.end
	}
	// Readers sort spans of one sequence id by their start: the order must show.
	raw := sent.Add(time.Microsecond)
	return []agl.Span{
		span(0, agl.SpanProxyRequest, root, c.start, c.end),
		span(1, agl.SpanLiteLLMRequest, b.modelCall(c, &x), sent, last),
		span(2, agl.SpanRawRequest, b.rawExchange(&x), raw, later(raw, last)),
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// identify makes sure that the call's response id is its own within the
// attempt: readers take two calls with one id for one call.
func (b *builder) identify(c *call, x *exchange) {
	if c.status >= 300 {
		return
	}
	own := strconv.FormatInt(c.sequence, 10)
	if c.sequence == 0 { // not yet
		own = strconv.FormatUint(c.uid, 36)
	}
	if x.responseID == "" {
		x.responseID = "chatcmpl-" + own
	}
	if _, taken := c.attempt.seen[x.responseID]; taken {
		x.responseID += "#" + own
	}
	c.attempt.seen[x.responseID] = struct{}{}
}

// unquote returns a string's text; of anything else, nothing.
func unquote(raw []byte) string {
	text, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return ""
	}
	return string(text)
}

func errorMessage(raw []byte) string {
	if len(raw) > 0 && raw[0] == '"' {
		return unquote(raw)
	}
	message := ""
	openai.Members(raw, func(name, value []byte) {
		if string(name) == "message" {
			message = unquote(value)
		}
	})
	return message
}

type spanIDs struct {
	trace string
	spans [spansPerCall]string
}

func newSpanIDs() spanIDs {
	var random [16 + 8*spansPerCall]byte
	// crypto/rand.Read never fails; it ends the program instead.
	_, _ = rand.Read(random[:])
	text := hex.EncodeToString(random[:])
	ids := spanIDs{trace: text[:32]}
	for i := range ids.spans {
		ids.spans[i] = text[32+16*i : 48+16*i]
	}
	return ids
}
