package proxy

import (
	"strconv"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
)

// modelCall writes the attributes of the span that stands for the model call.
func (b *builder) modelCall(a *attrs, c *call, x *exchange) {
	system, operation := "openai", "chat"
	switch c.form {
	case formMessages:
		system = "anthropic"
	case formCompletion:
		operation = "text_completion"
	case formChat, formResponses:
	}
	a.text(agl.AttrGenAISystem, system)
	a.text(agl.AttrGenAIOperation, operation)
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
	if c.tries > 1 {
		a.integer(AttrTries, int64(c.tries))
	}
	if c.cached {
		a.boolean(AttrCached, true)
	}
	if c.outcome != "" {
		a.text(AttrOutcome, string(c.outcome))
	}
}

func writeRequest(a *attrs, c *call, x *exchange) {
	if x.request == nil {
		if len(c.request) > 0 {
			a.text(AttrRequestText, string(c.request))
		}
		return
	}
	prompt := promptWriter{attrs: a}
	openai.Members(x.request, func(name, value []byte) {
		switch member := string(name); {
		case prompt.write(c.form, member, value):
		case member == "tools":
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

// writeTool writes a tool's members: those of the function in it, which
// Responses and Messages give without the wrapping.
func writeTool(a *attrs, prefix string, tool []byte) {
	openai.Members(tool, func(name, value []byte) {
		switch {
		case string(name) == "function" && value[0] == '{':
			openai.Members(value, func(name, value []byte) { a.value(prefix, name, value) })
		case string(name) == "input_schema":
			a.value(prefix, []byte("parameters"), value)
		case string(name) != "type":
			a.value(prefix, name, value)
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
	for i := range x.choices {
		choice := &x.choices[i]
		prefix := agl.AttrGenAICompletion + "." + strconv.Itoa(i)
		if choice.message != nil {
			a.message(prefix, choice.message)
		}
		for _, m := range choice.finish {
			a.value(prefix, m.Name, m.Value)
		}
		if i > 0 {
			continue
		}
		if choice.logprobs != nil {
			a.json(agl.AttrLogprobsContent, choice.logprobs)
		}
		if choice.refusal != nil {
			a.json(agl.AttrLogprobsRefusal, choice.refusal)
		}
		if choice.versions != nil {
			a.json(AttrVersionSpans, choice.versions)
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
		case "prompt_tokens", "input_tokens":
			in = n
		case "completion_tokens", "output_tokens":
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

// rawExchange writes the attributes of the span that holds the backend's reply
// member by member, what is a list or an object as a Python literal.
func rawExchange(a *attrs, x *exchange) {
	if x.responseID != "" {
		a.text(rawPrefix+".id", x.responseID)
	}
	for _, m := range x.members {
		switch string(m.Name) {
		case "id", "prompt_token_ids", "response_token_ids":
		default:
			a.python(rawPrefix, m.Name, m.Value)
		}
	}
	if len(x.tokens.prompt) > 0 {
		a.idsText(rawPrefix+".prompt_token_ids", func(dst []byte) []byte { return appendIDs(dst, x.tokens.prompt) })
	}
	if x.tokens.given() {
		a.idsText(rawPrefix+".response_token_ids", func(dst []byte) []byte {
			dst = append(dst, '[')
			for i, reply := range x.tokens.replies {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = appendIDs(dst, reply)
			}
			return append(dst, ']')
		})
	}
}
