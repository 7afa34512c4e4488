package chat

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// Message is one chat message. Content parts of a request arrive here as one text.
type Message struct {
	Role       string
	Content    string
	ToolCalls  []ToolCall
	ToolCallID string
	// Reasoning is what the model thought before its reply, where its format tells that apart.
	Reasoning string
	// Raw is the message as it came, every member of it; nil for messages that were not read from JSON.
	Raw jsontext.Value
}

// ToolCall is a function call in a message of the assistant.
type ToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function FunctionCall `json:"function"`
}

// FunctionCall is what to call. Arguments is JSON text, as the model wrote it.
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
	// Variables are the request's chat_template_kwargs as they came; nil if there are none. Formats without
	// variables ignore them.
	Variables jsontext.Value
}

// Renderer is a model's chat format.
//
// A conversation that goes on should extend its tokens: the prompt after a reply is the prompt before it, the
// reply's ids with its stop token, and then whatever is new. Only then can a whole rollout be trained as one
// sequence.
type Renderer interface {
	// Prompt returns the ids that ask for the assistant's next message. What the format cannot express is
	// agl.CodeInvalid.
	Prompt(p PromptParams) ([]int32, error)
	// Parse turns the ids of a reply, with its stop token if it has one, into a message. It accepts
	// whatever a model may write: what cannot be read as a tool call is content.
	Parse(ids []int32) Message
	// Stop returns the tokens that end a reply.
	Stop() []int32
}

// Streamer is a [Renderer] that can read a reply while its tokens come. Without it only plain content is
// streamed in pieces.
type Streamer interface {
	Stream() Stream
}

// Stream reads one reply. The parts that Add and Close return make up what [Renderer.Parse] gives for all ids.
type Stream interface {
	// Add reads the next id and returns what is certain by now.
	Add(id int32) Delta
	// Close returns the rest.
	Close() Delta
}

// Delta is a part of a reply: the next text of its content and reasoning, and calls that are complete.
type Delta struct {
	Content, Reasoning string
	ToolCalls          []ToolCall
}

// Rememberer is a [Renderer] that wants to know what was sampled, so that the prompts of later turns begin with
// the same ids.
type Rememberer interface {
	// Remember takes a prompt that the renderer made and a reply to it, stop token included. It keeps
	// neither slice.
	Remember(prompt, reply []int32)
}

// RoleMarks is the chat format of the embedded policy. A message is the mark of its role and its characters;
// the assistant's also has an end mark:
//
//	▲12 times 7▼call 12*7■◆84▼ans 84■
//
// Roles are user, assistant and tool. Tool definitions and structured tool calls are not part of the format.
// It is safe for concurrent use.
type RoleMarks struct {
	tok Marked
	replyMemory
}

// Marked is a tokenizer with [Mark] tokens: [Characters] or [Bytes].
type Marked interface {
	Tokenizer
	// Vocab is the number of ids, marks included.
	Vocab() int
	// Mark returns the id of a mark.
	Mark(m Mark) int32
	// encodeWithMarks also reads what marks decode to, which only the text of a model's own reply may contain.
	// Where that is not what the model wrote, [RoleMarks.Remember] helps.
	encodeWithMarks(text string) ([]int32, error)
}

// NewRoleMarks makes the format for a tokenizer.
func NewRoleMarks(tok Marked) *RoleMarks { return &RoleMarks{tok: tok} }

// Prompt implements [Renderer].
func (r *RoleMarks) Prompt(p PromptParams) ([]int32, error) {
	if p.Tools != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "tools: this model takes no tool definitions")
	}
	ids, _, err := r.render(p.Messages)
	if err != nil {
		return nil, err
	}
	return append(ids, r.tok.Mark(MarkAssistant)), nil
}

// render returns the ids of a conversation, and for each whether the assistant wrote it.
func (r *RoleMarks) render(messages []Message) (ids []int32, written []bool, err error) {
	for i, m := range messages {
		var mark Mark
		encode := r.tok.Encode
		switch m.Role {
		case "user":
			mark = MarkUser
		case "tool":
			mark = MarkTool
		case "assistant":
			mark, encode = MarkAssistant, r.tok.encodeWithMarks
		default:
			return nil, nil, agl.Errorf(agl.CodeInvalid, "messages[%d].role: %q is not supported by this model; allowed are user, assistant, tool", i, m.Role)
		}
		if len(m.ToolCalls) > 0 {
			return nil, nil, agl.Errorf(agl.CodeInvalid, "messages[%d].tool_calls: this model takes no structured tool calls", i)
		}
		ids = append(ids, r.tok.Mark(mark))
		var text []int32
		if mark == MarkAssistant {
			text = r.recall(ids, m.Content)
		}
		if text == nil {
			if text, err = encode(m.Content); err != nil {
				return nil, nil, agl.Errorf(agl.CodeInvalid, "messages[%d].content: %w", i, err)
			}
		}
		ids = append(ids, text...)
		if mark == MarkAssistant {
			ids = append(ids, r.tok.Mark(MarkEnd))
		}
		begin := len(written)
		written = append(written, make([]bool, len(ids)-begin)...)
		for j := begin + 1; mark == MarkAssistant && j < len(ids); j++ {
			written[j] = true
		}
	}
	return ids, written, nil
}

// Parse implements [Renderer].
func (r *RoleMarks) Parse(ids []int32) Message {
	return Message{Role: "assistant", Content: r.tok.Decode(r.withoutEnd(ids))}
}

func (r *RoleMarks) withoutEnd(ids []int32) []int32 {
	if n := len(ids); n > 0 && ids[n-1] == r.tok.Mark(MarkEnd) {
		ids = ids[:n-1]
	}
	return ids
}

// Remember implements [Rememberer]. Only replies whose text does not tell their ids are kept, up to 1024: those with
// bytes that are no character, or that spell a mark. Of replies to one prompt with one text the last one counts.
func (r *RoleMarks) Remember(prompt, reply []int32) {
	reply = r.withoutEnd(reply)
	text := r.tok.Decode(reply)
	if again, err := r.tok.encodeWithMarks(text); err != nil || !slices.Equal(again, reply) {
		r.keep(prompt, text, reply)
	}
}

// Stop implements [Renderer].
func (r *RoleMarks) Stop() []int32 { return []int32{r.tok.Mark(MarkEnd)} }

// Demonstration turns a conversation into a datum for supervised training (cross_entropy): weight 1 on what
// the assistant writes, end marks included, and 0 on everything else. A conversation in which the assistant
// writes nothing is agl.CodeInvalid.
func (r *RoleMarks) Demonstration(messages []Message) (tinker.Datum, error) {
	ids, written, err := r.render(messages)
	if err != nil {
		return tinker.Datum{}, err
	}
	n := len(ids) - 1
	if n < 1 {
		return tinker.Datum{}, agl.Errorf(agl.CodeInvalid, "messages: the demonstration is empty")
	}
	d := tinker.Datum{Input: ids[:n], Targets: ids[1:], Weights: make([]float32, n)}
	found := false
	for i := range n {
		if written[i+1] {
			d.Weights[i], found = 1, true
		}
	}
	if !found {
		return tinker.Datum{}, agl.Errorf(agl.CodeInvalid, "messages: the assistant writes nothing in the demonstration")
	}
	return d, nil
}
