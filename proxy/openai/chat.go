package openai

import (
	"bytes"
	"cmp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// The types below are the part of Chat Completions that translations need. Values
// that pass through are raw.

// ChatRequest is a request for a chat completion. Other members are in Rest.
type ChatRequest struct {
	Model               jsontext.Value `json:"model,omitzero"`
	Messages            []ChatMessage  `json:"messages"`
	Tools               []ChatTool     `json:"tools,omitempty"`
	ToolChoice          jsontext.Value `json:"tool_choice,omitzero"`
	ParallelToolCalls   *bool          `json:"parallel_tool_calls,omitzero"`
	MaxTokens           jsontext.Value `json:"max_tokens,omitzero"`
	MaxCompletionTokens jsontext.Value `json:"max_completion_tokens,omitzero"`
	Stop                jsontext.Value `json:"stop,omitzero"`
	Stream              jsontext.Value `json:"stream,omitzero"`
	StreamOptions       jsontext.Value `json:"stream_options,omitzero"`
	Temperature         jsontext.Value `json:"temperature,omitzero"`
	TopP                jsontext.Value `json:"top_p,omitzero"`
	User                jsontext.Value `json:"user,omitzero"`
	ReasoningEffort     jsontext.Value `json:"reasoning_effort,omitzero"`
	ResponseFormat      *ChatFormat    `json:"response_format,omitzero"`
	ChatTemplateKwargs  jsontext.Value `json:"chat_template_kwargs,omitzero"`
	Rest                jsontext.Value `json:",embed"`
}

// ChatMessage is a message of a conversation, or a delta of one.
type ChatMessage struct {
	Role             string         `json:"role,omitzero"`
	Content          jsontext.Value `json:"content,omitzero"` // a string, parts, or null
	ReasoningContent jsontext.Value `json:"reasoning_content,omitzero"`
	Reasoning        jsontext.Value `json:"reasoning,omitzero"` // newer name of reasoning_content
	Refusal          jsontext.Value `json:"refusal,omitzero"`
	ThinkingBlocks   jsontext.Value `json:"thinking_blocks,omitzero"` // of Anthropic's models
	ToolCalls        []ChatCall     `json:"tool_calls,omitempty"`
	ToolCallID       jsontext.Value `json:"tool_call_id,omitzero"`
}

// ReasoningText returns the message's reasoning_content, or else its reasoning, or that in the parts of its content.
func (m *ChatMessage) ReasoningText() jsontext.Value {
	switch {
	case IsText(m.ReasoningContent):
		return m.ReasoningContent
	case IsText(m.Reasoning):
		return m.Reasoning
	default:
		return partTexts(m.Content, "thinking")
	}
}

// ContentText returns the message's content. Of a list of parts, as some services send one in their replies, it returns the texts.
func (m *ChatMessage) ContentText() jsontext.Value {
	if m.Content.Kind() == '[' {
		return partTexts(m.Content, "text")
	}
	return m.Content
}

// partTexts joins what the parts of a kind have in the member of its name: a text, or a list of parts with a text.
func partTexts(parts jsontext.Value, kind string) (joined jsontext.Value) {
	Elements(parts, func(part []byte) {
		var is string
		var text jsontext.Value
		Members(part, func(name, value []byte) {
			switch string(name) {
			case "type":
				is = Unquote(value)
			case kind:
				text = value
			}
		})
		switch {
		case is != kind:
		case text.Kind() == '[':
			joined = Join(joined, partTexts(text, "text"))
		default:
			joined = Join(joined, text)
		}
	})
	return joined
}

// ChatPart is a part of a message's content.
type ChatPart struct {
	Type     string         `json:"type"`
	Text     jsontext.Value `json:"text,omitzero"`
	Refusal  jsontext.Value `json:"refusal,omitzero"`
	ImageURL *ChatImageURL  `json:"image_url,omitzero"`
}

// PartsContent returns parts as the content of a message. A single text becomes a string, which every
// chat template accepts.
func PartsContent(parts []ChatPart) (jsontext.Value, error) {
	switch {
	case len(parts) == 0:
		return jsontext.Value(`""`), nil
	case len(parts) == 1 && parts[0].Type == "text":
		return parts[0].Text, nil
	}
	return AppendWire(nil, parts)
}

// ChatImageURL is the URL of an image; it may be a data URL.
type ChatImageURL struct {
	URL    jsontext.Value `json:"url"`
	Detail jsontext.Value `json:"detail,omitzero"`
}

// ChatCall is a tool call, or a delta of one.
type ChatCall struct {
	Index    *int           `json:"index,omitzero"`
	ID       jsontext.Value `json:"id,omitzero"`
	Type     string         `json:"type,omitzero"`
	Function ChatFunction   `json:"function"`
}

// Follows reports whether a delta begins another call than the one that has begun under its index with an id: some backends
// give all calls of a message the index 0. A name must come with the new id, because others give each delta of a call an id
// of its own.
func (c *ChatCall) Follows(begun jsontext.Value) bool {
	return IsText(begun) && IsText(c.ID) && IsText(c.Function.Name) && !bytes.Equal(c.ID, begun)
}

// ChatFunction is a function that is offered, chosen or called.
type ChatFunction struct {
	Name        jsontext.Value `json:"name,omitzero"`
	Description jsontext.Value `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters,omitzero"`
	Strict      jsontext.Value `json:"strict,omitzero"`
	Arguments   jsontext.Value `json:"arguments,omitzero"` // a string of JSON
}

// ChatTool is a tool that is offered, or the tool that must be called.
type ChatTool struct {
	Type     string        `json:"type"`
	Function *ChatFunction `json:"function"`
}

// ChatFormat is the required form of a reply's text.
type ChatFormat struct {
	Type       string      `json:"type"`
	JSONSchema *ChatSchema `json:"json_schema,omitzero"`
}

// ChatSchema is a JSON schema with a name.
type ChatSchema struct {
	Name        jsontext.Value `json:"name"`
	Description jsontext.Value `json:"description,omitzero"`
	Schema      jsontext.Value `json:"schema,omitzero"`
	Strict      jsontext.Value `json:"strict,omitzero"`
}

// ChatReply is a chat completion, or a chunk of one.
type ChatReply struct {
	ID      jsontext.Value `json:"id,omitzero"`
	Object  string         `json:"object,omitzero"`
	Created jsontext.Value `json:"created,omitzero"`
	Model   jsontext.Value `json:"model,omitzero"`
	Choices []ChatChoice   `json:"choices"`
	Usage   *ChatUsage     `json:"usage,omitzero"`
	Error   jsontext.Value `json:"error,omitzero"`
}

// ChatChoice is one of the alternatives of a reply.
type ChatChoice struct {
	Index        int            `json:"index"`
	Message      *ChatMessage   `json:"message,omitzero"`
	Delta        *ChatMessage   `json:"delta,omitzero"`
	Logprobs     jsontext.Value `json:"logprobs,omitzero"`
	FinishReason *string        `json:"finish_reason"`
	StopReason   jsontext.Value `json:"stop_reason,omitzero"` // vLLM's: the stop string or token that ended it
}

// Finished reports whether a choice of a chunk has a finish reason. Some backends send an empty one until they have it.
func (c *ChatChoice) Finished() bool { return c.FinishReason != nil && *c.FinishReason != "" }

// ChatUsage counts tokens.
type ChatUsage struct {
	Prompt         int64          `json:"prompt_tokens"`
	Completion     int64          `json:"completion_tokens"`
	Total          int64          `json:"total_tokens"`
	PromptDetails  *ChatCached    `json:"prompt_tokens_details,omitzero"`
	CompletionMore *ChatReasoning `json:"completion_tokens_details,omitzero"`
}

// UnmarshalJSON reads a usage as [ParseUsage] does: one whose counts are no numbers of tokens is zero, and no reply is lost
// because of it. Details that are none are left out.
func (u *ChatUsage) UnmarshalJSON(raw []byte) error {
	*u = ChatUsage{}
	counts, ok := ParseUsage(raw)
	if !ok {
		return nil
	}
	u.Prompt, u.Completion, u.Total = counts.Prompt, counts.Completion, counts.Sum()
	detail := func(object, name string) (n int64, ok bool) {
		details, _ := rawjson.Get(raw, object)
		count, _ := rawjson.Get(details, name)
		return TokenCount(count)
	}
	if n, ok := detail("prompt_tokens_details", "cached_tokens"); ok {
		u.PromptDetails = &ChatCached{n}
	}
	if n, ok := detail("completion_tokens_details", "reasoning_tokens"); ok {
		u.CompletionMore = &ChatReasoning{n}
	}
	return nil
}

// ChatCached counts the tokens of a prompt that came from a cache.
type ChatCached struct {
	Cached int64 `json:"cached_tokens"`
}

// ChatReasoning counts the tokens of a reply that are reasoning.
type ChatReasoning struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

// AppendWire appends the JSON of a value. Raw strings in it keep their spelling.
func AppendWire(dst []byte, v any) ([]byte, error) {
	out, err := json.Marshal(v, rawjson.Options())
	if err != nil {
		return dst, err
	}
	return append(dst, out...), nil
}

// AppendEvent appends a server-sent event with the JSON of a value. An empty name is
// left out.
func AppendEvent(dst []byte, name string, v any) ([]byte, error) {
	before := len(dst)
	if name != "" {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	out, err := AppendWire(append(dst, "data: "...), v)
	if err != nil {
		return dst[:before], err
	}
	return append(out, "\n\n"...), nil
}

// EventWriter appends events, up to the first error.
type EventWriter struct {
	Dst []byte
	Err error
}

// Event is [AppendEvent].
func (w *EventWriter) Event(name string, v any) {
	if w.Err == nil {
		w.Dst, w.Err = AppendEvent(w.Dst, name, v)
	}
}

// JSON returns the JSON of a value, as [AppendWire] has it.
func (w *EventWriter) JSON(v any) jsontext.Value {
	raw, err := AppendWire(nil, v)
	w.Err = cmp.Or(w.Err, err)
	return raw
}

// Given reports whether a value is present and not null.
func Given(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != 'n' }

// Failed reports whether the member error of a reply, or of an event of a stream, says that something failed. Some backends send an
// empty one with each event.
func Failed(fault jsontext.Value) bool {
	return len(fault) > len("{}") && (fault[0] == '{' || fault[0] == '"')
}

// IsText reports whether a value is a string that is not empty.
func IsText(v jsontext.Value) bool { return len(v) > len(`""`) && v.Kind() == '"' }

// Quote returns a string as JSON, with U+FFFD for each invalid byte.
func Quote[T ~string | ~[]byte](s T) jsontext.Value {
	return rawjson.AppendString(nil, string(s))
}

// Unquote returns the text of a JSON string, and "" for anything else.
func Unquote(v jsontext.Value) string { return rawjson.Unquote(v) }

// Join concatenates two JSON strings and keeps their escapes. A value that is not a string
// adds nothing.
func Join(a, b jsontext.Value) jsontext.Value {
	switch {
	case b.Kind() != '"':
		return a
	case a.Kind() != '"':
		return b
	}
	return append(bytes.Clone(a[:len(a)-1]), b[1:]...)
}

// KeepMembers returns an object with the members for which keep returns true, or nil if
// none is left.
func KeepMembers(object jsontext.Value, keep func(name string, value jsontext.Value) bool) jsontext.Value {
	kept := []byte{'{'}
	Members(object, func(name, value []byte) {
		if keep(string(name), value) {
			kept = appendMember(kept, name, value)
		}
	})
	if len(kept) == 1 {
		return nil
	}
	return append(kept, '}')
}
