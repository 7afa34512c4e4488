package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"math"
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
	// AttrReplyCut says that the reply was too long to be recorded whole.
	AttrReplyCut = "agentlightning.proxy.reply_cut"
	// AttrRequestText and AttrReplyText hold a body that is not JSON.
	AttrRequestText = "agentlightning.proxy.request_text"
	AttrReplyText   = "agentlightning.proxy.reply_text"
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

// exchange is what a record needs of a request and its reply.
type exchange struct {
	request, reply []byte // JSON objects, or nil
	parts          openai.Reply
	replyText      []byte // a reply that is none
	responseID     string
	model          []byte // raw
	usage          []byte // raw
	message        string // of an error
	tokens         tokens
}

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

// read takes a call's bytes apart. Nothing but valid JSON gets further.
func (b *builder) read(c *call) exchange {
	var x exchange
	switch {
	case c.asked != nil:
		x.request = c.asked
	case isObject(c.request):
		x.request = c.request
	}
	reply := c.reply
	if c.assembled != nil {
		reply = c.assembled.AppendJSON(nil)
		if c.assembled.Malformed() > 0 {
			c.fail(SourceProvider, strconv.Itoa(c.assembled.Malformed())+" events of the stream could not be read")
		}
	}
	if len(reply) == 0 {
		if c.status > 0 {
			c.fail(SourceProvider, "the reply is empty")
		}
		return x
	}
	if !isObject(reply) {
		x.replyText = reply
		c.fail(SourceProvider, "the reply is not a JSON object")
		return x
	}
	x.reply, x.parts = reply, openai.ParseReply(reply)
	var prompt, replies []byte
	for _, m := range x.parts.Members {
		switch string(m.Name) {
		case "id":
			x.responseID = unquote(m.Value)
		case "model":
			x.model = m.Value
		case "usage":
			x.usage = m.Value
		case "prompt_token_ids":
			prompt = m.Value
		case "response_token_ids":
			replies = m.Value
		case "error":
			x.message = errorMessage(m.Value)
		}
	}
	if !c.cut {
		x.tokens = readTokens(prompt, replies, x.parts.Choices)
	}
	x.tokens.order = c.order
	b.identify(c, &x)
	return x
}

// identify makes sure that the call's response id is its own within the
// attempt: readers take two calls with one id for one call.
func (b *builder) identify(c *call, x *exchange) {
	if c.status >= 300 {
		return
	}
	if x.responseID == "" {
		x.responseID = "chatcmpl-" + strconv.FormatInt(c.sequence, 10)
	}
	if _, taken := c.attempt.seen[x.responseID]; taken {
		x.responseID += "#" + strconv.FormatInt(c.sequence, 10)
	}
	c.attempt.seen[x.responseID] = struct{}{}
}

func isObject(raw []byte) bool {
	v := jsontext.Value(raw)
	return len(raw) > 0 && v.Kind() == '{' && v.IsValid(jsontext.AllowDuplicateNames(true))
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

// readTokens reads ids as vLLM gives them: the reply's beside its choices, and
// before version 0.10.2 beside them all.
func readTokens(prompt, replies []byte, choices []openai.Choice) tokens {
	t := tokens{prompt: readIDs(prompt)}
	for _, choice := range choices {
		var ids []int32
		for _, m := range choice.Members {
			if string(m.Name) == "token_ids" {
				ids = readIDs(m.Value)
			}
		}
		t.replies = append(t.replies, ids)
	}
	i := 0
	openai.Elements(replies, func(value []byte) {
		if i < len(t.replies) && len(t.replies[i]) == 0 {
			t.replies[i] = readIDs(value)
		}
		i++
	})
	return t
}

// readIDs reads a list of integers, valid as JSON; anything else is nil.
func readIDs(raw []byte) []int32 {
	if len(raw) < 3 || raw[0] != '[' {
		return nil
	}
	ids := make([]int32, 0, len(raw)/4)
	for i := 1; i < len(raw)-1; i++ { // up to the bracket, over what separates
		switch raw[i] {
		case ',', ' ', '\n', '\t', '\r':
			continue
		}
		start, sign := i, int64(1)
		if raw[i] == '-' {
			start, sign = i+1, -1
		}
		n := int64(0)
		for i = start; '0' <= raw[i] && raw[i] <= '9' && n <= math.MaxInt32; i++ {
			n = 10*n + int64(raw[i]-'0')
		}
		switch {
		case i == start || n > math.MaxInt32:
			return nil
		case raw[i] == '.' || raw[i] == 'e' || raw[i] == 'E':
			return nil
		}
		ids = append(ids, int32(sign*n))
	}
	return ids
}

// given reports whether the backend gave the ids of a prompt and of a reply.
func (t *tokens) given() bool {
	return len(t.prompt) > 0 && len(t.replies) > 0 && len(t.replies[0]) > 0
}

// drift returns the first index at which a prompt parts from previous prompt
// and reply ids, for the choice that it follows furthest; -1 when it extends them.
func drift(previous *tokens, prompt []int32) int {
	n := common(previous.prompt, prompt)
	if n < len(previous.prompt) {
		return n
	}
	furthest := n
	for _, reply := range previous.replies {
		m := common(reply, prompt[n:])
		if m == len(reply) {
			return -1
		}
		furthest = max(furthest, n+m)
	}
	return furthest
}

func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
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
