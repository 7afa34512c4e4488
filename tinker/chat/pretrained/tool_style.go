package pretrained

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker/chat"
)

// Style is how a model writes tool calls.
type Style string

// The styles.
const (
	// StyleAuto means that the template tells the style.
	StyleAuto Style = ""
	// StyleNone is the style of a model without tool calls.
	StyleNone Style = "none"
	// StyleHermes is the style of Qwen and Hermes: <tool_call>{"name": …, "arguments": {…}}</tool_call>, any number of
	// times.
	StyleHermes Style = "hermes"
	// StyleLlama is the style of Llama 3: the reply is {"name": …, "parameters": {…}}, or several with a ; between.
	StyleLlama Style = "llama3"
	// StyleDeepSeek is the style of DeepSeek V3 and R1: a section of calls, each with a type, a name and fenced JSON.
	StyleDeepSeek Style = "deepseek"
)

func (s Style) validate() error {
	switch s {
	case StyleAuto, StyleNone, StyleHermes, StyleLlama, StyleDeepSeek:
		return nil
	}
	return agl.Errorf(agl.CodeInvalid, "style is %q; allowed are none, hermes, llama3, deepseek", s)
}

// styleOf returns the style in which a template writes tool calls.
func styleOf(source string) Style {
	switch {
	case strings.Contains(source, "<tool_call>") && strings.Contains(source, `"arguments"`):
		return StyleHermes
	case strings.Contains(source, dsCallsBegin):
		return StyleDeepSeek
	case strings.Contains(source, "<|start_header_id|>") && strings.Contains(source, `"parameters": `):
		return StyleLlama
	}
	return StyleNone
}

const (
	thinkBegin = "<think>"
	thinkEnd   = "</think>"

	hermesBegin = "<tool_call>"
	hermesEnd   = "</tool_call>"

	dsCallsBegin = "<｜tool▁calls▁begin｜>"
	dsCallsEnd   = "<｜tool▁calls▁end｜>"
	dsCallBegin  = "<｜tool▁call▁begin｜>"
	dsCallEnd    = "<｜tool▁call▁end｜>"
	dsSep        = "<｜tool▁sep｜>"

	llamaTag = "<|python_tag|>"
)

// tags are the texts that begin and end tool calls in a reply. Llama has none.
func (s Style) tags() (begin, end string) {
	switch s {
	case StyleHermes:
		return hermesBegin, hermesEnd
	case StyleDeepSeek:
		return dsCallsBegin, dsCallsEnd
	}
	return "", ""
}

// calls reads the text between the tags; ok is false if it is no tool calls.
func (s Style) calls(text string) (calls []chat.FunctionCall, ok bool) {
	switch s {
	case StyleHermes:
		call, rest, ok := readCall(text, "arguments")
		return []chat.FunctionCall{call}, ok && strings.TrimSpace(rest) == ""
	case StyleDeepSeek:
		return deepSeekCalls(text)
	case StyleLlama:
		return llamaCalls(text)
	}
	return nil, false
}

// readCall reads an object with a name and arguments at the start of text. The arguments, an object or text that holds one,
// stay as they are written: a template that takes objects renders no other ones in the next prompt.
func readCall(text, arguments string) (call chat.FunctionCall, rest string, ok bool) {
	dec := jsontext.NewDecoder(strings.NewReader(text))
	v, err := dec.ReadValue()
	if err != nil || v.Kind() != '{' {
		return call, "", false
	}
	rest = text[dec.InputOffset():]
	var members map[string]jsontext.Value
	if err := json.Unmarshal(v, &members); err != nil {
		return call, "", false
	}
	if err := json.Unmarshal(members["name"], &call.Name); err != nil || call.Name == "" {
		return call, "", false
	}
	args := members[arguments]
	switch args.Kind() {
	case '{':
		call.Arguments = string(args)
	case '"':
		if err := json.Unmarshal(args, &call.Arguments); err != nil {
			return call, "", false
		}
		if inner := jsontext.Value(call.Arguments); inner.Kind() != '{' || !inner.IsValid() {
			return call, "", false
		}
	default:
		return call, "", false
	}
	return call, rest, true
}

func llamaCalls(text string) (calls []chat.FunctionCall, ok bool) {
	text = strings.TrimPrefix(strings.TrimSpace(text), llamaTag)
	for {
		call, rest, ok := readCall(text, "parameters")
		if !ok {
			return nil, false
		}
		calls = append(calls, call)
		rest = strings.TrimSpace(rest)
		if rest == "" {
			return calls, true
		}
		if text, ok = strings.CutPrefix(rest, ";"); !ok {
			return nil, false
		}
	}
}

func deepSeekCalls(text string) (calls []chat.FunctionCall, ok bool) {
	for {
		text = strings.TrimSpace(text)
		if text == "" {
			return calls, len(calls) > 0
		}
		inner, found := strings.CutPrefix(text, dsCallBegin)
		if !found {
			return nil, false
		}
		inner, text, found = strings.Cut(inner, dsCallEnd)
		_, call, hasType := strings.Cut(inner, dsSep)
		name, fenced, hasName := strings.Cut(call, "\n")
		fenced, hasFence := strings.CutPrefix(fenced, "```json\n")
		arguments, closed := strings.CutSuffix(strings.TrimRight(fenced, "\n"), "\n```")
		if !found || !hasType || !hasName || !hasFence || !closed || strings.TrimSpace(name) == "" {
			return nil, false
		}
		calls = append(calls, chat.FunctionCall{Name: strings.TrimSpace(name), Arguments: arguments})
	}
}
