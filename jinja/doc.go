// Package jinja renders chat templates and prompt templates exactly as Python does when transformers renders them.
//
// It implements the part of Jinja2 that such templates use, in the environment of transformers: sandboxed and
// immutable, with trim_blocks, lstrip_blocks, loop controls, generation blocks, raise_exception, strftime_now and a
// tojson that escapes nothing for HTML. Values behave as in Python: None prints as None, an int is not a float, a
// dict keeps its order, and adding None to a text is an error.
//
//	t, err := jinja.Parse("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", jinja.Config{})
//	text, err := t.Render(map[string]any{"messages": messages})
//
// [Limits] bound what a rendering may take, so templates from strangers can be rendered. A template cannot read files
// or other templates: extends, include, import and block are syntax errors.
//
// # How a template is rendered
//
// [Parse] (template.go) hands the source to internal/syntax, which cuts it into tokens and reads them into a tree of
// statements and expressions. It checks the names of filters and tests against library.go, which collects them from
// filter.go, filter_sequence.go, filter_json.go and tests.go. [Template.Render] copies the variables into values
// (variable.go), adds the functions of globals.go, and walks the tree: exec.go runs statements and calls macros, eval.go
// evaluates expressions, loop.go is the variable loop. Operators, attributes, methods and calls are those of internal/value,
// which has Python's values and counts what a rendering takes. internal/pytext, at the bottom, has the pure functions of
// Python's str: case, white space, repr, the formatting of numbers and dates. Imports point downwards only.
//
// The package must not know what a message, a prompt or a tokenizer is.
package jinja
