package proxy

import (
	"strconv"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
)

// modelCall are the attributes of the span that stands for the model call.
func (b *builder) modelCall(c *call, x *exchange) *attrs {
	a := newAttrs(1024 + len(x.request) + len(x.reply))
	a.text(agl.AttrGenAISystem, "openai")
	a.text(agl.AttrGenAIOperation, "chat")
	a.boolean(attrStreaming, c.stream)
	writeRequest(a, c, x)
	writeReply(a, x)
	b.writeTokens(a, c, x)
	if c.backend != nil {
		a.text(agl.AttrModelVersion, c.backend.Version)
		a.text(agl.AttrModelVersionEnd, c.versioned)
		a.text(AttrBackend, c.backend.base.Redacted())
	}
	if c.status > 0 {
		a.integer(attrStatus, int64(c.status))
	}
	a.boolean(AttrDelivered, c.delivered)
	if !c.sent.IsZero() {
		a.seconds(AttrQueueSeconds, c.sent.Sub(c.start).Seconds())
		for _, t := range [...]struct {
			key string
			at  time.Time
		}{{AttrFirstByteSeconds, c.firstByte}, {AttrTotalSeconds, c.lastByte}} {
			if !t.at.IsZero() {
				a.seconds(t.key, t.at.Sub(c.sent).Seconds())
			}
		}
	}
	if c.fault != "" {
		a.text(AttrErrorSource, c.source)
	}
	if c.cut {
		a.boolean(AttrReplyCut, true)
	}
	return a
}

func writeRequest(a *attrs, c *call, x *exchange) {
	if x.request == nil {
		if len(c.request) > 0 {
			a.text(AttrRequestText, string(c.request))
		}
		return
	}
	openai.Members(x.request, func(name, value []byte) {
		switch string(name) {
		case "messages":
			i := 0
			openai.Elements(value, func(message []byte) {
				a.message(agl.AttrGenAIPrompt+"."+strconv.Itoa(i), message)
				i++
			})
		case "tools":
			i := 0
			openai.Elements(value, func(tool []byte) {
				writeTool(a, agl.AttrGenAIRequest+".functions."+strconv.Itoa(i), tool)
				i++
			})
		default:
			a.value(agl.AttrGenAIRequest, name, value)
		}
	})
}

func writeTool(a *attrs, prefix string, tool []byte) {
	openai.Members(tool, func(name, value []byte) {
		if string(name) == "function" {
			openai.Members(value, func(name, value []byte) { a.value(prefix, name, value) })
		}
	})
}

func writeReply(a *attrs, x *exchange) {
	if x.replyText != nil {
		a.text(AttrReplyText, string(x.replyText))
		return
	}
	if x.responseID != "" {
		a.text(agl.AttrGenAIResponseID, x.responseID)
	}
	if len(x.model) > 0 && x.model[0] == '"' {
		a.raw(agl.AttrGenAIResponseModel, x.model)
	}
	writeUsage(a, x)
	for i, choice := range x.parts.Choices {
		prefix := agl.AttrGenAICompletion + "." + strconv.Itoa(i)
		for _, m := range choice.Members {
			switch string(m.Name) {
			case "message":
				a.message(prefix, m.Value)
			case "finish_reason", "stop_reason":
				a.value(prefix, m.Name, m.Value)
			case "logprobs":
				if i == 0 {
					writeLogprobs(a, choice.Logprobs)
				}
			}
		}
	}
}

func writeLogprobs(a *attrs, logprobs []openai.Member) {
	for _, m := range logprobs {
		switch {
		case m.Value[0] != '[':
		case string(m.Name) == "content":
			a.json(agl.AttrLogprobsContent, m.Value)
		case string(m.Name) == "refusal":
			a.json(agl.AttrLogprobsRefusal, m.Value)
		}
	}
}

// writeUsage writes what the backend counted, or else what its ids say.
func writeUsage(a *attrs, x *exchange) {
	in, out, total := int64(-1), int64(-1), int64(-1)
	openai.Members(x.usage, func(name, value []byte) {
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return
		}
		switch string(name) {
		case "prompt_tokens":
			in = n
		case "completion_tokens":
			out = n
		case "total_tokens":
			total = n
		}
	})
	if in < 0 && out < 0 && x.tokens.given() {
		in, out = int64(len(x.tokens.prompt)), 0
		for _, reply := range x.tokens.replies {
			out += int64(len(reply))
		}
	}
	if total < 0 && in >= 0 && out >= 0 {
		total = in + out
	}
	for _, u := range [...]struct {
		key   string
		value int64
	}{
		{agl.AttrGenAIInputTokens, in},
		{agl.AttrGenAIPromptTokens, in},
		{agl.AttrGenAIOutputTokens, out},
		{agl.AttrGenAICompleteTokens, out},
		{agl.AttrGenAITotalTokens, total},
	} {
		if u.value >= 0 {
			a.integer(u.key, u.value)
		}
	}
}

// writeTokens writes the ids and where they part from the attempt's call before.
func (b *builder) writeTokens(a *attrs, c *call, x *exchange) {
	if !x.tokens.given() {
		return
	}
	a.ids(agl.AttrPromptTokenIDs, x.tokens.prompt)
	a.ids(agl.AttrResponseTokenIDs, x.tokens.replies[0])
	last := c.attempt.last
	if last != nil && last.order > c.order {
		return // an overtaken call; its successor has been compared already
	}
	if last != nil {
		a.integer(AttrDriftIndex, int64(drift(last, x.tokens.prompt)))
	}
	kept := x.tokens // apart from the exchange, which holds the whole reply
	b.ledger.remember(c.attempt, &kept)
}

// rawExchange are the attributes of the span that holds the backend's reply
// member by member, what is a list or an object as a Python literal.
func (b *builder) rawExchange(x *exchange) *attrs {
	a := newAttrs(512 + len(x.reply)*9/8)
	if x.responseID != "" {
		a.text(rawPrefix+".id", x.responseID)
	}
	for _, m := range x.parts.Members {
		switch string(m.Name) {
		case "id", "prompt_token_ids", "response_token_ids":
		default:
			a.python(rawPrefix, m.Name, m.Value)
		}
	}
	if len(x.tokens.prompt) > 0 {
		a.json(rawPrefix+".prompt_token_ids", appendIDs(nil, x.tokens.prompt))
	}
	if x.tokens.given() {
		list := []byte{'['}
		for i, reply := range x.tokens.replies {
			if i > 0 {
				list = append(list, ',')
			}
			list = appendIDs(list, reply)
		}
		a.json(rawPrefix+".response_token_ids", append(list, ']'))
	}
	return a
}
