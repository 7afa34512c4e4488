package pretrained

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/jinja"
	"github.com/agl-go/agl/tinker/chat"
)

// form says which variant a template needs of what OpenAI's form leaves open.
type form struct {
	argumentsAsObject bool // arguments of tool calls are objects; else text
	nullContent       bool // the content of a message with nothing but calls is null; else ""
	partsAsText       bool // content that is a list of parts is joined to one text
}

// value is a message in the form that the template needs.
func (f form) value(m chat.Message) (*jinja.Dict, error) {
	raw := m.Raw
	if raw == nil {
		var err error
		raw, err = json.Marshal(struct {
			Role       string          `json:"role"`
			Content    string          `json:"content"`
			Reasoning  string          `json:"reasoning_content,omitzero"`
			ToolCallID string          `json:"tool_call_id,omitzero"`
			ToolCalls  []chat.ToolCall `json:"tool_calls,omitzero"`
		}{m.Role, m.Content, m.Reasoning, m.ToolCallID, m.ToolCalls})
		if err != nil {
			return nil, agl.Errorf(agl.CodeInvalid, "%w", err)
		}
	}
	v, err := parseValue(raw)
	if err != nil {
		return nil, err
	}
	message, ok := v.(*jinja.Dict)
	if !ok {
		return nil, agl.Errorf(agl.CodeInvalid, "a message is an object")
	}
	return f.apply(message)
}

// apply turns a message of OpenAI's form into one that the template can render.
func (f form) apply(message *jinja.Dict) (*jinja.Dict, error) {
	content, _ := message.Get("content")
	calls, _ := message.Get("tool_calls")
	list, _ := calls.([]any)
	out := withReasoning(withoutNull(message))
	if parts, ok := content.([]any); ok && f.partsAsText {
		out.Set("content", joinParts(parts))
	}
	if content == nil || content == "" {
		out.Set("content", "")
		if f.nullContent && len(list) > 0 {
			out.Set("content", nil)
		}
	}
	if !f.argumentsAsObject || len(list) == 0 {
		return out, nil
	}
	changed := make([]any, len(list))
	for i, v := range list {
		call, err := withArguments(v)
		if err != nil {
			return nil, agl.Errorf(agl.CodeInvalid, "tool_calls[%d]: %w", i, err)
		}
		changed[i] = call
	}
	out.Set("tool_calls", changed)
	return out, nil
}

// joinParts is the text of content parts.
func joinParts(parts []any) string {
	var b strings.Builder
	for _, p := range parts {
		if part, ok := p.(*jinja.Dict); ok {
			v, _ := part.Get("text")
			text, _ := v.(string)
			b.WriteString(text)
		}
	}
	return b.String()
}

// withArguments is a tool call whose arguments are an object instead of text.
func withArguments(v any) (any, error) {
	call, ok := v.(*jinja.Dict)
	if !ok {
		return nil, agl.Errorf(agl.CodeInvalid, "a call is an object")
	}
	f, _ := call.Get("function")
	function, ok := f.(*jinja.Dict)
	if !ok {
		return call, nil
	}
	a, _ := function.Get("arguments")
	text, ok := a.(string)
	if !ok {
		return call, nil
	}
	arguments, err := parseValue(jsontext.Value(text))
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "function.arguments: %w", err)
	}
	return with(call, "function", with(function, "arguments", arguments)), nil
}

// with is a copy of a dict with another value of a key.
func with(dict *jinja.Dict, key string, value any) *jinja.Dict {
	out := new(jinja.Dict)
	for name, v := range dict.All() {
		out.Set(name, v)
	}
	out.Set(key, value)
	return out
}

func withoutNull(message *jinja.Dict) *jinja.Dict {
	out := new(jinja.Dict)
	for name, v := range message.All() {
		if v != nil {
			out.Set(name, v)
		}
	}
	return out
}

// withReasoning passes a message's reasoning under each of the names that templates read. withoutNull has removed null members before.
func withReasoning(message *jinja.Dict) *jinja.Dict {
	for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
		if reasoning, ok := message.Get(name); ok {
			out := new(jinja.Dict)
			out.Set("thinking", reasoning)
			for name, v := range message.All() {
				out.Set(name, v)
			}
			out.Set("reasoning_content", reasoning)
			return out
		}
	}
	return message
}
