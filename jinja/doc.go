// Package jinja renders the templates that models and prompts come with: the part of Jinja2 that chat
// templates use, with the results that Python gives when transformers renders them (sandboxed and immutable,
// trim_blocks, lstrip_blocks, loop controls, generation blocks, its own tojson, raise_exception and
// strftime_now). Values behave as Python's do: None prints as None, an int is not a float, a dict keeps its
// order, and text plus None is an error.
//
// What a template may take is bounded ([Limits]), so templates from strangers can be rendered. There is no
// file access and no way to reach other templates: extends, include, import and block are refused.
//
// The package is a leaf: it imports the standard library only and must not know what a message, a prompt or a
// tokenizer is.
package jinja
