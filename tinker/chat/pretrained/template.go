package pretrained

import (
	"maps"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/jinja"
)

// Template is a model's chat template. It is safe for concurrent use.
type Template struct {
	template *jinja.Template
	special  map[string]string
}

// NewTemplate parses the chat_template of a model. special are the texts of special tokens by their names in
// tokenizer_config.json, such as bos_token. A template that cannot be parsed is agl.ErrInvalid.
func NewTemplate(source string, special map[string]string) (*Template, error) {
	t, err := jinja.Parse(source, jinja.Config{})
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "chat template: %w", err)
	}
	return &Template{t, special}, nil
}

// TextParams are the arguments of [Template.Text]; their names are those of apply_chat_template in transformers.
type TextParams struct {
	// Messages is a JSON array of objects, at least one.
	Messages jsontext.Value
	// Tools is a JSON array; nil or null is none.
	Tools jsontext.Value
	// AddGenerationPrompt asks for the start of the assistant's next message behind the conversation.
	AddGenerationPrompt bool
	// Variables is a JSON object of further variables, such as enable_thinking; nil is none.
	Variables jsontext.Value
}

// Text renders a conversation exactly as transformers 5 does: null members of messages are left out, and reasoning is
// passed under each of its names. What cannot be parsed, and what the template refuses, is agl.ErrInvalid.
func (t *Template) Text(p TextParams) (string, error) {
	v, err := parseValue(p.Messages)
	if err != nil {
		return "", agl.Errorf(agl.CodeInvalid, "messages: %w", err)
	}
	messages, ok := v.([]any)
	if !ok || len(messages) == 0 {
		return "", agl.Errorf(agl.CodeInvalid, "messages: an array of at least one message is needed")
	}
	for i, m := range messages {
		message, ok := m.(*jinja.Dict)
		if !ok {
			return "", agl.Errorf(agl.CodeInvalid, "messages[%d]: a message is an object", i)
		}
		messages[i] = withReasoning(withoutNull(message))
	}
	return t.render(messages, p)
}

// render renders messages that are in the template's form.
func (t *Template) render(messages []any, p TextParams) (string, error) {
	vars := map[string]any{}
	for name, text := range t.special {
		vars[name] = text
	}
	if p.Variables != nil {
		v, err := parseValue(p.Variables)
		dict, ok := v.(*jinja.Dict)
		if err != nil || !ok {
			return "", agl.Errorf(agl.CodeInvalid, "chat_template_kwargs: a JSON object is needed")
		}
		maps.Insert(vars, dict.All())
	}
	vars["tools"], vars["documents"] = nil, nil
	if p.Tools != nil {
		v, err := parseValue(p.Tools)
		if err != nil {
			return "", agl.Errorf(agl.CodeInvalid, "tools: %w", err)
		}
		vars["tools"] = v
	}
	vars["messages"], vars["add_generation_prompt"] = messages, p.AddGenerationPrompt
	text, err := t.template.Render(vars)
	if err != nil {
		return "", agl.Errorf(agl.CodeInvalid, "chat template: %w", err)
	}
	return text, nil
}
