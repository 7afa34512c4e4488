package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/spanjson"
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
	// "budget" when there was none left for it, and if the agent fails after it
	// "model_error" or "context_overflow".
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

// builder turns calls into spans in their wire form. It belongs to one goroutine.
type builder struct {
	ledger   *ledger
	reply    []byte // room for a reply that is put together
	resource []byte // and for the attributes of the resource
}

func newBuilder(l *ledger) *builder { return &builder{ledger: l} }

// build appends the spans of a call, each a JSON document, and has the call
// point to them.
func (b *builder) build(dst []byte, c *call) []byte {
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
	resource := newAttrs(b.resource[:0])
	resource.text("service.name", "agl-proxy")
	resource.text(agl.AttrTracerName, tracerName)
	resource.text(agl.AttrRolloutID, attempt.rollout.id)
	resource.text(agl.AttrAttemptID, attempt.id)
	resource.integer(agl.AttrSpanSequenceID, c.sequence)
	b.resource = resource.done()
	s := agl.Span{
		RolloutID: attempt.rollout.id, AttemptID: attempt.id, SequenceID: c.sequence, TraceID: ids.trace,
		Status: status, Resource: agl.SpanResource{Attributes: b.resource}, Context: &agl.SpanContext{TraceID: ids.trace},
	}
	c.spans = make([]jsontext.Value, 0, spansPerCall)
	span := func(name string, start, end time.Time, write func(a *attrs)) {
		if len(c.spans) > 0 {
			s.ParentID, s.Parent = agl.Some(s.SpanID), &agl.SpanContext{TraceID: ids.trace, SpanID: s.SpanID}
		}
		s.Name, s.SpanID = name, ids.spans[len(c.spans)]
		s.Context.SpanID = s.SpanID
		s.StartTime, s.EndTime = agl.Some(agl.TimestampOf(start)), agl.Some(agl.TimestampOf(end))
		from := len(dst)
		dst = spanjson.Append(dst, &s, func(dst []byte) []byte {
			a := newAttrs(dst)
			write(a)
			return a.done()
		})
		c.spans = append(c.spans, dst[from:len(dst):len(dst)])
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
	span(agl.SpanProxyRequest, c.start, c.end, func(a *attrs) {
		a.text(attrMethod, c.method)
		a.text(attrPath, c.path)
		if c.status > 0 {
			a.integer(attrStatus, int64(c.status))
		}
	})
	span(agl.SpanLiteLLMRequest, sent, last, func(a *attrs) { b.modelCall(a, c, &x) })
	span(agl.SpanRawRequest, raw, later(raw, last), func(a *attrs) { rawExchange(a, &x) })
	if cap(b.reply) > keptBuffer {
		b.reply = nil
	}
	return dst
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
