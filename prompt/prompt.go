// Package prompt renders prompt templates, so that agents and algorithms fill them in the same way.
//
// The package knows the vocabulary and the template language; it must not know rollouts, models or stores.
package prompt

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/jinja"
)

// fstring renders an f-string: Python's text.format(**variables) is an operation of the template language.
const fstring = "{{ template.format(**variables) }}"

// Render fills the placeholders of a template. Variables are what [jinja.Template.Render] takes: texts,
// numbers, booleans, nil, lists and maps.
//
// In a template of the engine f-string, {name} stands for a variable, {name[key]} and {name:>8} work as in
// Python's str.format, and {{ is a brace. The engine jinja is that of chat templates: blocks that stand alone
// on a line leave no line behind. What a template may take is bounded by jinja's default limits. A placeholder
// without a variable, a template that cannot be parsed and the engine poml, which only Python's library
// renders, are agl.CodeInvalid.
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
