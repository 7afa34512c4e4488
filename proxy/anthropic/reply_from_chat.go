package anthropic

import (
	"slices"
	"strings"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/go-json-experiment/json/jsontext"
)

// ChatReply translates the reply of a Chat Completions backend for an agent that speaks
// Messages: a whole reply, an error, or the events of a stream one by one. Its zero
// value is ready for one reply.
//
// Only the first choice is translated, because a message has one. Reasoning becomes a
// thinking block without a signature, refusals become text with the stop reason
// refusal, and arguments that are not a JSON object are wrapped in
// {"INVALID_JSON": …}.
type ChatReply struct {
	started, ended bool
	refusal        bool
	open           *chatBlock   // the block that is being sent, or nil
	waiting        []*chatBlock // blocks that began while another was not complete
	calls          map[int]*chatBlock
	next           int // index of the next block
	finish         string
	stop           raw
	usage          *openai.ChatUsage
}

// Reply appends the message for a chat completion.
func (c *ChatReply) Reply(dst, completion []byte) ([]byte, error) {
	var in openai.ChatReply
	if err := rawjson.Unmarshal(completion, &in); err != nil {
		return dst, openai.DecodeError(err)
	}
	if len(in.Choices) == 0 || in.Choices[0].Message == nil {
		if openai.Given(in.Error) {
			return dst, openai.BackendError(in.Error)
		}
		return dst, openai.Unsupported("choices", "the reply has none")
	}
	choice := &in.Choices[0]
	m := choice.Message
	out := reply{ID: orUnknown(in.ID), Type: "message", Role: "assistant", Model: orUnknown(in.Model), Content: []block{}, StopSequence: null}
	if r := m.ReasoningText(); openai.IsText(r) {
		out.Content = append(out.Content, block{Type: "thinking", Thinking: r, Signature: raw(`""`)})
	}
	for _, t := range []raw{m.ContentText(), m.Refusal} {
		if openai.IsText(t) {
			out.Content = append(out.Content, block{Type: "text", Text: t})
		}
	}
	for _, call := range m.ToolCalls {
		out.Content = append(out.Content, block{Type: "tool_use", ID: orUnknown(call.ID), Name: call.Function.Name, Input: input(call.Function.Arguments)})
	}
	finish := ""
	if choice.FinishReason != nil {
		finish = *choice.FinishReason
	}
	reason := stopReason(finish, choice.StopReason, len(m.ToolCalls) > 0, openai.IsText(m.Refusal))
	out.StopReason = &reason
	if reason == "stop_sequence" {
		out.StopSequence = choice.StopReason
	}
	out.Usage = messageUsage(in.Usage)
	return openai.AppendWire(dst, &out)
}

func orUnknown(v raw) raw {
	if openai.Given(v) {
		return v
	}
	return raw(`"unknown"`)
}

// stopReason translates a finish reason. A reply with tool calls always has tool_use, because
// several backends say "stop" after a call that the request forced, or after text and a call.
func stopReason(finish string, stop raw, calls, refusal bool) string {
	switch {
	case finish == "length":
		return "max_tokens"
	case finish == "content_filter" || refusal:
		return "refusal"
	case calls:
		return "tool_use"
	case stop.Kind() == '"':
		return "stop_sequence"
	default:
		return "end_turn"
	}
}

// messageUsage translates a usage.
func messageUsage(u *openai.ChatUsage) usage {
	if u == nil {
		return usage{}
	}
	out := usage{Input: u.Prompt, Output: u.Completion}
	if u.PromptDetails != nil {
		out.CacheRead = min(u.PromptDetails.Cached, u.Prompt)
		out.Input -= out.CacheRead
	}
	return out
}

// chatBlock is a content block of a message that is assembled from deltas.
type chatBlock struct {
	kind      string // text, thinking or tool_use
	id, name  raw
	held      []raw  // deltas that have not been sent
	arguments []byte // of a tool use: the JSON so far, without escapes
	closed    bool
}

// complete reports whether a block that another one follows is complete: arguments end with
// their JSON value, and a text ends where another block begins.
func (b *chatBlock) complete() bool {
	return b.kind != "tool_use" || len(b.arguments) > 0 && raw(b.arguments).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// Event appends the events for the data of one event of the backend's stream. It fails
// when the data is not a chunk of a chat completion.
func (c *ChatReply) Event(dst, data []byte) ([]byte, error) {
	switch {
	case isDone(data):
		return c.finishStream(dst)
	case openai.Blank(data) || c.ended:
		return dst, nil
	}
	var in openai.ChatReply
	if err := rawjson.Unmarshal(data, &in); err != nil {
		return dst, openai.DecodeError(err)
	}
	if openai.Failed(in.Error) {
		c.ended = true
		return c.Fail(dst, openai.ErrorFrom(0, data)), nil
	}
	to := openai.EventWriter{Dst: dst}
	if !c.started {
		c.started = true
		c.start(&to, &in)
	}
	if in.Usage != nil {
		c.usage = in.Usage
	}
	for i := range in.Choices {
		choice := &in.Choices[i]
		if choice.Index != 0 {
			continue
		}
		if choice.Delta != nil {
			c.delta(&to, choice.Delta)
		}
		if choice.Finished() {
			c.finish, c.stop = *choice.FinishReason, choice.StopReason
		}
	}
	return to.Dst, to.Err
}

// End appends what is missing after the backend's last event. It fails when the stream
// was not complete.
func (c *ChatReply) End(dst []byte) ([]byte, error) {
	if c.ended {
		return dst, nil
	}
	if c.finish == "" {
		return dst, openai.Unsupported("stream", "it ended without a finish reason")
	}
	return c.finishStream(dst)
}

// Fail appends the event that reports an error. It is the last one.
func (c *ChatReply) Fail(dst []byte, e openai.Error) []byte {
	c.ended = true
	return append(e.AppendJSON(append(dst, "event: error\ndata: "...)), "\n\n"...)
}

// Done reports whether the last event of the stream has been appended.
func (c *ChatReply) Done() bool { return c.ended }

type startEvent struct {
	Type    string `json:"type"`
	Message reply  `json:"message"`
}

func (c *ChatReply) start(to *openai.EventWriter, in *openai.ChatReply) {
	to.Event("message_start", &startEvent{Type: "message_start", Message: reply{
		ID: orUnknown(in.ID), Type: "message", Role: "assistant", Model: orUnknown(in.Model), Content: []block{}, StopSequence: null,
		Usage: messageUsage(in.Usage),
	}})
}

func (c *ChatReply) delta(to *openai.EventWriter, d *openai.ChatMessage) {
	for _, piece := range [...]struct {
		kind string
		text raw
	}{{"thinking", d.ReasoningText()}, {"text", d.ContentText()}, {"text", d.Refusal}} {
		if openai.IsText(piece.text) {
			c.add(to, c.textBlock(piece.kind), piece.text)
		}
	}
	for i, call := range d.ToolCalls {
		index := i
		if call.Index != nil {
			index = *call.Index
		}
		b := c.calls[index]
		if b == nil || call.Follows(b.id) {
			b = &chatBlock{kind: "tool_use", id: orUnknown(call.ID), name: call.Function.Name}
			if c.calls == nil {
				c.calls = make(map[int]*chatBlock)
			}
			c.calls[index] = b
		}
		c.add(to, b, call.Function.Arguments)
	}
	c.refusal = c.refusal || openai.IsText(d.Refusal)
}

// textBlock returns the block that a text continues: the last one, if it has the kind, or a
// new one.
func (c *ChatReply) textBlock(kind string) *chatBlock {
	last := c.open
	if n := len(c.waiting); n > 0 {
		last = c.waiting[n-1]
	}
	if last != nil && last.kind == kind {
		return last
	}
	return &chatBlock{kind: kind}
}

// add adds a piece to a block. The blocks of a message are sent one after the other, so a
// piece of a block that began while another one was incomplete is held until that one ends.
func (c *ChatReply) add(to *openai.EventWriter, b *chatBlock, piece raw) {
	if b.kind == "tool_use" && openai.IsText(piece) {
		b.arguments = append(b.arguments, openai.Unquote(piece)...)
	}
	switch {
	case b.closed:
		if strings.TrimSpace(openai.Unquote(piece)) != "" && to.Err == nil {
			to.Err = openai.Unsupported("choices[0].delta.tool_calls", "arguments continue after their end")
		}
		return
	case b == c.open:
		c.tell(to, b, piece)
	default:
		if !slices.Contains(c.waiting, b) {
			c.waiting = append(c.waiting, b)
		}
		if openai.IsText(piece) {
			b.held = append(b.held, piece)
		}
	}
	c.advance(to, false)
}

// advance sends the waiting blocks whose predecessors are complete, or all if the stream has
// ended.
func (c *ChatReply) advance(to *openai.EventWriter, ended bool) {
	for len(c.waiting) > 0 && (c.open == nil || ended || c.open.complete()) {
		c.shut(to)
		b := c.waiting[0]
		c.waiting = c.waiting[1:]
		c.open = b
		c.announce(to, b)
		for _, piece := range b.held {
			c.tell(to, b, piece)
		}
		b.held = nil
	}
}

type blockEvent struct {
	Type         string      `json:"type"`
	Index        int         `json:"index"`
	ContentBlock *block      `json:"content_block,omitzero"`
	Delta        *blockDelta `json:"delta,omitzero"`
}

type blockDelta struct {
	Type        string `json:"type"`
	Text        raw    `json:"text,omitzero"`
	Thinking    raw    `json:"thinking,omitzero"`
	PartialJSON raw    `json:"partial_json,omitzero"`
}

func (c *ChatReply) announce(to *openai.EventWriter, b *chatBlock) {
	empty := raw(`""`)
	start := &block{Type: b.kind}
	switch b.kind {
	case "text":
		start.Text = empty
	case "thinking":
		start.Thinking, start.Signature = empty, empty
	default:
		start.ID, start.Name, start.Input = b.id, b.name, raw("{}")
	}
	to.Event("content_block_start", &blockEvent{Type: "content_block_start", Index: c.next, ContentBlock: start})
}

func (c *ChatReply) tell(to *openai.EventWriter, b *chatBlock, piece raw) {
	if !openai.IsText(piece) {
		return
	}
	d := &blockDelta{}
	switch b.kind {
	case "text":
		d.Type, d.Text = "text_delta", piece
	case "thinking":
		d.Type, d.Thinking = "thinking_delta", piece
	default:
		d.Type, d.PartialJSON = "input_json_delta", piece
	}
	to.Event("content_block_delta", &blockEvent{Type: "content_block_delta", Index: c.next, Delta: d})
}

// shut ends the open block, if any.
func (c *ChatReply) shut(to *openai.EventWriter) {
	if c.open != nil {
		c.open.closed = true
		c.open = nil
		to.Event("content_block_stop", &blockEvent{Type: "content_block_stop", Index: c.next})
		c.next++
	}
}

type endEvent struct {
	Type  string   `json:"type"`
	Delta endDelta `json:"delta"`
	Usage usage    `json:"usage"`
}

type endDelta struct {
	StopReason   string `json:"stop_reason"`
	StopSequence raw    `json:"stop_sequence"`
}

func (c *ChatReply) finishStream(dst []byte) ([]byte, error) {
	if c.ended {
		return dst, nil
	}
	if !c.started {
		return dst, openai.Unsupported("stream", "it ended before it began")
	}
	c.ended = true
	to := openai.EventWriter{Dst: dst}
	c.advance(&to, true)
	c.shut(&to)
	end := endEvent{Type: "message_delta", Usage: messageUsage(c.usage)}
	end.Delta = endDelta{StopReason: stopReason(c.finish, c.stop, len(c.calls) > 0, c.refusal), StopSequence: null}
	if end.Delta.StopReason == "stop_sequence" {
		end.Delta.StopSequence = c.stop
	}
	if to.Event("message_delta", &end); to.Err != nil {
		return to.Dst, to.Err
	}
	return append(to.Dst, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...), nil
}
