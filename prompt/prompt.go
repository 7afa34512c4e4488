// Package prompt renders prompt templates. Agents and algorithms use it, so that both fill in a template in the same way:
//
//	template, err := task.Resources.PromptTemplate()
//	…
//	text, err := prompt.Render(template, map[string]any{"question": "12 times 7"})
//
// The package knows the vocabulary and the template language. It must not know rollouts, models or stores.
package prompt

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/jinja"
)

// fstring is a jinja template that renders an f-string: the language has Python's text.format(**variables).
const fstring = "{{ template.format(**variables) }}"

// Render fills in the placeholders of a template. Variables are those of
// [jinja.Template.Render]: strings, numbers, booleans, nil, lists and maps.
//
// In a template of the engine f-string, {name} is a variable, {name[key]} and {name:>8} work as in Python's str.format, and
// {{ is a brace. The engine jinja is that of chat templates: a line that holds only a block tag disappears. Time and memory
// are bounded by the default limits of package jinja.
//
// A placeholder without a variable, a template that cannot be parsed, and the engine
// poml, which only the Python library can render, are agl.ErrInvalid.
func Render(t agl.PromptTemplate, variables map[string]any) (string, error) {
	source := t.Template
	switch t.Engine {
	case agl.PromptJinja:
	case agl.PromptFString:
		source = fstring
		variables = map[string]any{"template": t.Template, "variables": variables}
	default:
		return "", agl.Errorf(agl.CodeInvalid, "engine: %q cannot be rendered here; jinja and f-string can", t.Engine)
	}
	parsed, err := jinja.Parse(source, jinja.Config{})
	if err != nil {
		return "", agl.Errorf(agl.CodeInvalid, "prompt template: %w", err)
	}
	text, err := parsed.Render(variables)
	if err != nil {
		return "", agl.Errorf(agl.CodeInvalid, "prompt template: %w", err)
	}
	return text, nil
}
