package chat

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Message is one chat message. In JSON it is a message of OpenAI's API, whose content may be a text, null, or a list of
// text parts.
type Message struct {
	Role string
	// Content is the text, of all parts joined.
	Content    string
	ToolCalls  []ToolCall
	ToolCallID string
	// Reasoning is what the model thought before its reply, where its format tells that apart.
	Reasoning string
	// Raw is the message as it came, with every member of it; nil for a message that was not read from JSON.
	Raw jsontext.Value
}

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (m *Message) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	var in struct {
		Role       string      `json:"role"`
		Content    contentText `json:"content"`
		ToolCalls  []ToolCall  `json:"tool_calls"`
		ToolCallID string      `json:"tool_call_id"`
	}
	*m = Message{Raw: raw.Clone()}
	err = json.Unmarshal(m.Raw, &in)
	m.Role, m.Content, m.ToolCalls, m.ToolCallID = in.Role, string(in.Content), in.ToolCalls, in.ToolCallID
	return err
}

// contentText reads a string, null, or an array of text parts.
type contentText string

func (c *contentText) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*c = ""
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '[':
		var parts []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if err := json.UnmarshalDecode(dec, &parts); err != nil {
			return err
		}
		for i, p := range parts {
			if p.Type != "text" {
				return fmt.Errorf("part %d has type %q; only text is supported", i, p.Type)
			}
			*c += contentText(p.Text)
		}
		return nil
	default:
		return json.UnmarshalDecode(dec, (*string)(c))
	}
}

// ToolCall is a function call in a message of the assistant.
type ToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function FunctionCall `json:"function"`
}

// FunctionCall names a function and its arguments, a JSON text as the model wrote it.
type FunctionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// PromptParams are the arguments of [Renderer.Prompt].
type PromptParams struct {
	// Messages is the conversation so far, at least one message.
	Messages []Message
	// Tools is the request's tools array as it came; nil if there is none.
	Tools jsontext.Value
	// Variables is the request's chat_template_kwargs object as it came; nil if there is none. Formats without variables
	// ignore it.
	Variables jsontext.Value
}

// Renderer is a model's chat format.
//
// The tokens of a conversation should only grow: the prompt after a reply is the prompt before it, the reply's ids with its
// stop token, and whatever is new. Only then can a whole rollout be trained as one sequence.
type Renderer interface {
	// Prompt returns the ids that ask for the assistant's next message. What the format cannot express is agl.ErrInvalid.
	Prompt(p PromptParams) ([]int32, error)
	// Stream reads a reply.
	Stream() Stream
	// Stop returns the tokens that end a reply.
	Stop() []int32
}

// Stream reads one reply token by token. The deltas that it returns make up the message; [ReadAll] joins them. It accepts
// whatever a model may write: what is not a tool call is content.
type Stream interface {
	// Add reads the next id, which may be a stop token, and returns what is certain by then.
	Add(id int32) Delta
	// Close returns the rest.
	Close() Delta
}

// Delta is a part of a reply: the next text of its content and reasoning, and complete tool calls.
type Delta struct {
	Content, Reasoning string
	ToolCalls          []ToolCall
}

func (d *Delta) add(next Delta) {
	d.Content += next.Content
	d.Reasoning += next.Reasoning
	d.ToolCalls = append(d.ToolCalls, next.ToolCalls...)
}

// ReadAll reads the ids of a whole reply, with its stop token if it has one.
func ReadAll(s Stream, ids []int32) Message {
	var all Delta
	for _, id := range ids {
		all.add(s.Add(id))
	}
	all.add(s.Close())
	return Message{Role: "assistant", Content: all.Content, Reasoning: all.Reasoning, ToolCalls: all.ToolCalls}
}

// PromptReader is a [Renderer] that must know the prompt of a reply to read it: whether the prompt has begun its reasoning, for example.
type PromptReader interface {
	// StreamAfter reads a reply to a prompt that the renderer made.
	StreamAfter(prompt []int32) Stream
}

// streamAfter reads a reply to a prompt.
func streamAfter(r Renderer, prompt []int32) Stream {
	if reader, ok := r.(PromptReader); ok {
		return reader.StreamAfter(prompt)
	}
	return r.Stream()
}

// Rememberer is a [Renderer] that must know what was sampled, so that the prompts of later turns begin with the same ids.
type Rememberer interface {
	// Remember takes a prompt that the renderer made, and the reply that was sampled, with its stop token. It copies what
	// it needs of both.
	Remember(prompt, reply []int32)
}
