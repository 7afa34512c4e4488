package jinja_test

import (
	"errors"
	"fmt"

	"github.com/agl-go/agl/jinja"
)

func ExampleTemplate_Render() {
	const source = `
{%- for m in messages %}
    {%- if m.role not in ['system', 'user'] %}
        {{- raise_exception('unknown role: ' ~ m.role) }}
    {%- endif %}
    {{- '<' ~ m.role ~ '>' ~ m.content | trim ~ '\n' }}
{%- endfor %}
{%- if tools %}{{ tools | tojson }}{% endif %}`
	t, err := jinja.Parse(source, jinja.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	tool := new(jinja.Dict) // keeps the order of its keys
	tool.Set("name", "add")
	tool.Set("arguments", []any{1, 2.0, nil})
	text, err := t.Render(map[string]any{
		"messages": []any{map[string]any{"role": "user", "content": " What is 1 + 2? "}},
		"tools":    []any{tool},
	})
	fmt.Println(text, err)

	_, err = t.Render(map[string]any{"messages": []any{map[string]any{"role": "robot"}}})
	if failure, ok := errors.AsType[*jinja.Error](err); ok {
		fmt.Println(failure.Kind, "on line", failure.Line)
	}
	// Output:
	// <user>What is 1 + 2?
	// [{"name": "add", "arguments": [1, 2.0, null]}] <nil>
	// raised on line 4
}
