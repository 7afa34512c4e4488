package anthropic

import (
	"bytes"
	"slices"
	"strings"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/go-json-experiment/json"
)

// MessageReply translates the reply of a Messages backend for an agent that speaks Chat
// Completions: a whole reply, an error, or the events of a stream one by one. It serves
// one reply.
//
// Thinking becomes reasoning_content. The blocks themselves, whose signatures the next
// request must contain, are in thinking_blocks, a member that [FromChat] understands.
type MessageReply struct {
	Created int64 // seconds since 1970
	Usage   bool  // the agent wants the usage of a stream

	id, model raw
	started   bool
	ended     bool
	finish    string
	usage     usage
	open      []*openBlock // in the order in which they began
	calls     int          // tool uses so far
	thoughts  int          // thinking blocks so far
}

// openBlock is a content block of a stream that has begun and has not ended.
type openBlock struct {
	block
	at   string // its index, as the backend spells it
	call int    // the index of a tool use among the calls
	told bool   // arguments of a tool use have been sent
}

// Reply appends the chat completion for a message.
func (m *MessageReply) Reply(dst, whole []byte) ([]byte, error) {
	var in reply
	if err := rawjson.Unmarshal(whole, &in); err != nil {
		return dst, openai.DecodeError(err)
	}
	switch {
	case in.Type == "message":
	case openai.Given(in.Error):
		return dst, openai.BackendError(in.Error)
	default:
		return dst, openai.Unsupported("type", "got %q from the backend, must be message", in.Type)
	}
	out := openai.ChatMessage{Role: "assistant", Content: null}
	var said raw
	var thoughts []block
	for _, b := range in.Content {
		switch b.Type {
		case "text":
			said = openai.Join(said, b.Text)
		case "thinking", "redacted_thinking":
			if openai.IsText(b.Thinking) {
				out.ReasoningContent = openai.Join(out.ReasoningContent, b.Thinking)
			}
			thoughts = append(thoughts, b)
		case "tool_use":
			out.ToolCalls = append(out.ToolCalls, openai.ChatCall{ID: b.ID, Type: "function", Function: openai.ChatFunction{Name: b.Name, Arguments: arguments(b.Input)}})
		}
	}
	if said != nil {
		out.Content = said
	}
	if thoughts != nil {
		var err error
		if out.ThinkingBlocks, err = openai.AppendWire(nil, thoughts); err != nil {
			return dst, err
		}
	}
	stop := ""
	if in.StopReason != nil {
		stop = *in.StopReason
	}
	finish := finishReason(stop, len(out.ToolCalls))
	return openai.AppendWire(dst, &openai.ChatReply{
		ID: in.ID, Object: "chat.completion", Created: m.created(), Model: in.Model,
		Choices: []openai.ChatChoice{{Message: &out, Logprobs: null, FinishReason: &finish}}, Usage: in.Usage.chat(),
	})
}

func (m *MessageReply) created() raw {
	v, _ := json.Marshal(m.Created) // of an integer, which cannot fail
	return v
}

// finishReason translates a stop reason. Some backends leave it out: then the calls say why the message ended.
func finishReason(stop string, calls int) string {
	if stop == "" && calls > 0 {
		return "tool_calls"
	}
	switch stop {
	case "max_tokens", "model_context_window_exceeded":
		return "length"
	case "tool_use":
		return "tool_calls"
	case "refusal":
		return "content_filter"
	default:
		return "stop"
	}
}

// chat translates a usage.
func (u usage) chat() *openai.ChatUsage {
	prompt := u.Input + u.CacheRead + u.CacheCreation
	return &openai.ChatUsage{Prompt: prompt, Completion: u.Output, Total: prompt + u.Output, PromptDetails: &openai.ChatCached{Cached: u.CacheRead}}
}

// event is an event of a message's stream.
type event struct {
	Type         string     `json:"type"`
	Index        raw        `json:"index"`
	Error        raw        `json:"error"`
	Message      *reply     `json:"message"`
	ContentBlock *block     `json:"content_block"`
	Delta        eventDelta `json:"delta"`
	Usage        raw        `json:"usage"`
}

type eventDelta struct {
	Type        string `json:"type"`
	Text        raw    `json:"text"`
	Thinking    raw    `json:"thinking"`
	Signature   raw    `json:"signature"`
	PartialJSON raw    `json:"partial_json"`
	StopReason  string `json:"stop_reason"`
}

// Event appends the chunks for the data of one event of the backend's stream. It fails
// when the data is not an event of a message. Events of unknown kinds are dropped. Some
// gateways end a stream with [DONE], and report an error without a type.
func (m *MessageReply) Event(dst, data []byte) ([]byte, error) {
	switch {
	case openai.Blank(data) || m.ended:
		return dst, nil
	case isDone(data):
		return m.End(dst)
	}
	var in event
	if err := rawjson.Unmarshal(data, &in); err != nil {
		return dst, openai.DecodeError(err)
	}
	switch in.Type {
	case "message_start":
		if in.Message == nil {
			return dst, openai.Unsupported("message", "message_start has none")
		}
		m.started = true
		m.id, m.model, m.usage = in.Message.ID, in.Message.Model, in.Message.Usage
		return m.chunk(dst, &openai.ChatMessage{Role: "assistant", Content: raw(`""`)}, nil)
	case "content_block_start":
		if in.ContentBlock == nil {
			return dst, openai.Unsupported("content_block", "content_block_start has none")
		}
		return m.begin(dst, string(in.Index), *in.ContentBlock)
	case "content_block_delta":
		return m.delta(dst, m.find(string(in.Index)), &in.Delta)
	case "content_block_stop":
		return m.stop(dst, m.find(string(in.Index)))
	case "message_delta":
		if in.Delta.StopReason != "" {
			m.finish = in.Delta.StopReason
		}
		// A count that is absent keeps its value of message_start.
		if err := rawjson.Unmarshal(orEmpty(in.Usage), &m.usage); err != nil {
			return dst, openai.DecodeError(err)
		}
		return dst, nil
	case "message_stop":
		return m.end(dst)
	case "error":
		return m.Fail(dst, openai.ErrorFrom(0, data)), nil
	case "ping":
		return append(dst, ": ping\n\n"...), nil
	case "":
		if openai.Given(in.Error) {
			return m.Fail(dst, openai.ErrorFrom(0, data)), nil
		}
	}
	return dst, nil
}

func isDone(data []byte) bool { return string(bytes.TrimSpace(data)) == "[DONE]" }

func orEmpty(v raw) raw {
	if openai.Given(v) {
		return v
	}
	return raw("{}")
}

// Fail appends the event that reports an error. It is the last one.
func (m *MessageReply) Fail(dst []byte, e openai.Error) []byte {
	m.ended = true
	return append(e.AppendJSON(append(dst, "data: "...)), "\n\n"...)
}

// End appends what is missing after the backend's last event. It fails when the stream
// was not complete.
func (m *MessageReply) End(dst []byte) ([]byte, error) {
	switch {
	case m.ended:
		return dst, nil
	case m.finish == "":
		return dst, openai.Unsupported("stream", "it ended without a stop reason")
	}
	return m.end(dst)
}

// Done reports whether the last event of the stream has been appended.
func (m *MessageReply) Done() bool { return m.ended }

// find returns the open block with an index, or else the one that began last: some backends send no index, or the same
// for each block. It returns nil if no block is open.
func (m *MessageReply) find(at string) (found *openBlock) {
	for _, b := range m.open {
		if found == nil || found.at != at || b.at == at {
			found = b
		}
	}
	return found
}

func (m *MessageReply) begin(dst []byte, at string, begun block) (_ []byte, err error) {
	if before := m.find(at); before != nil && before.at == at { // its end did not come
		if dst, err = m.stop(dst, before); err != nil {
			return dst, err
		}
	}
	b := &openBlock{block: begun, at: at}
	m.open = append(m.open, b)
	switch b.Type {
	case "text":
		if openai.IsText(b.Text) {
			return m.chunk(dst, &openai.ChatMessage{Content: b.Text}, nil)
		}
	case "thinking":
		if openai.IsText(b.Thinking) {
			return m.chunk(dst, &openai.ChatMessage{ReasoningContent: b.Thinking}, nil)
		}
	case "tool_use":
		b.call = m.calls
		m.calls++
		if dst, err = m.call(dst, b, openai.ChatCall{ID: b.ID, Type: "function", Function: openai.ChatFunction{Name: b.Name, Arguments: raw(`""`)}}); err != nil {
			return dst, err
		}
		if openai.Given(b.Input) && string(b.Input) != "{}" {
			return m.argue(dst, b, arguments(b.Input))
		}
	}
	return dst, nil
}

func (m *MessageReply) call(dst []byte, b *openBlock, c openai.ChatCall) ([]byte, error) {
	c.Index = &b.call
	return m.chunk(dst, &openai.ChatMessage{ToolCalls: []openai.ChatCall{c}}, nil)
}

// argue sends a piece of the arguments of a tool use.
func (m *MessageReply) argue(dst []byte, b *openBlock, piece raw) ([]byte, error) {
	b.told = true
	return m.call(dst, b, openai.ChatCall{Function: openai.ChatFunction{Arguments: piece}})
}

// delta sends a piece of a block. A text needs no block: some backends do not begin one. Arguments of a tool that runs at the
// backend are no call of the agent's.
func (m *MessageReply) delta(dst []byte, b *openBlock, d *eventDelta) ([]byte, error) {
	switch {
	case d.Type == "text_delta" && openai.IsText(d.Text):
		return m.chunk(dst, &openai.ChatMessage{Content: d.Text}, nil)
	case d.Type == "thinking_delta" && openai.IsText(d.Thinking):
		switch {
		case b == nil:
		case openai.IsText(b.Thinking): // it grows in place
			b.Thinking = append(b.Thinking[:len(b.Thinking)-1], d.Thinking[1:]...)
		default:
			b.Thinking = bytes.Clone(d.Thinking)
		}
		return m.chunk(dst, &openai.ChatMessage{ReasoningContent: d.Thinking}, nil)
	case b == nil:
	case d.Type == "signature_delta":
		b.Signature = d.Signature
	case d.Type == "input_json_delta" && openai.IsText(d.PartialJSON) && b.Type == "tool_use":
		return m.argue(dst, b, d.PartialJSON)
	}
	return dst, nil
}

func (m *MessageReply) stop(dst []byte, b *openBlock) ([]byte, error) {
	if b == nil {
		return dst, nil
	}
	m.open = slices.DeleteFunc(m.open, func(other *openBlock) bool { return other == b })
	switch {
	case b.Type == "tool_use" && !b.told:
		return m.argue(dst, b, raw(`"{}"`))
	case strings.HasSuffix(b.Type, "thinking"):
		// Clients assemble the blocks of a stream by their index.
		index := m.thoughts
		m.thoughts++
		b.Index = &index
		thoughts, err := openai.AppendWire(nil, []block{b.block})
		if err != nil {
			return dst, err
		}
		return m.chunk(dst, &openai.ChatMessage{ThinkingBlocks: thoughts}, nil)
	}
	return dst, nil
}

func (m *MessageReply) end(dst []byte) (_ []byte, err error) {
	if !m.started {
		return dst, openai.Unsupported("stream", "it ended before it began")
	}
	for len(m.open) > 0 { // their ends did not come
		if dst, err = m.stop(dst, m.open[0]); err != nil {
			return dst, err
		}
	}
	m.ended = true
	finish := finishReason(m.finish, m.calls)
	if dst, err = m.chunk(dst, &openai.ChatMessage{}, &finish); err != nil {
		return dst, err
	}
	if m.Usage {
		last := m.head()
		last.Usage = m.usage.chat()
		if dst, err = openai.AppendEvent(dst, "", last); err != nil {
			return dst, err
		}
	}
	return append(dst, "data: [DONE]\n\n"...), nil
}

func (m *MessageReply) head() *openai.ChatReply {
	return &openai.ChatReply{ID: m.id, Object: "chat.completion.chunk", Created: m.created(), Model: m.model, Choices: []openai.ChatChoice{}}
}

func (m *MessageReply) chunk(dst []byte, delta *openai.ChatMessage, finish *string) ([]byte, error) {
	if !m.started {
		return dst, openai.Unsupported("type", "the stream does not begin with message_start")
	}
	c := m.head()
	c.Choices = append(c.Choices, openai.ChatChoice{Delta: delta, Logprobs: null, FinishReason: finish})
	return openai.AppendEvent(dst, "", c)
}
