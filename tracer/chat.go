package tracer

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// chatRequestAttrs returns the gen_ai attributes of a chat completion request;
// none for a body that is not one.
func chatRequestAttrs(body []byte) []agl.Attr {
	attrs := []agl.Attr{{Key: agl.AttrGenAISystem, Value: "openai"}, {Key: agl.AttrGenAIOperation, Value: "chat"}}
	raw := jsontext.Value(body)
	if !raw.IsValid(rawjson.Options()) || raw.Kind() != '{' {
		return attrs
	}
	for name, value := range agl.Attributes(raw).All() {
		switch name {
		case "messages":
			for i, message := range jsonElements(value) {
				attrs = appendMessage(attrs, agl.AttrGenAIPrompt+"."+strconv.Itoa(i), message)
			}
		case "tools":
			attrs = appendTools(attrs, value)
		default:
			attrs = flattenJSON(attrs, agl.AttrGenAIRequest+"."+name, value)
		}
	}
	return attrs
}

// appendTools describes the functions that the model may call.
func appendTools(attrs []agl.Attr, tools jsontext.Value) []agl.Attr {
	n := 0
	for _, tool := range jsonElements(tools) {
		function, ok := rawjson.Get(tool, "function")
		name, named := rawjson.Get(function, "name")
		if !ok || !named {
			continue
		}
		prefix := fmt.Sprintf("%s.functions.%d.", agl.AttrGenAIRequest, n)
		n++
		attrs = append(attrs, agl.Attr{Key: prefix + "name", Value: text(name)})
		if description, ok := rawjson.Get(function, "description"); ok {
			attrs = append(attrs, agl.Attr{Key: prefix + "description", Value: text(description)})
		}
		parameters, ok := rawjson.Get(function, "parameters")
		if !ok {
			parameters = jsontext.Value("{}")
		}
		attrs = append(attrs, agl.Attr{Key: prefix + "parameters", Value: string(parameters)})
	}
	return attrs
}

// appendMessage describes one chat message under the prefix. Whatever is
// neither a scalar nor a tool call is kept as its JSON text, content in parts
// included.
func appendMessage(attrs []agl.Attr, prefix string, message jsontext.Value) []agl.Attr {
	for name, value := range agl.Attributes(message).All() {
		switch {
		case name == "tool_calls":
			for i, call := range toolCallsOf(value) {
				p := fmt.Sprintf("%s.tool_calls.%d.", prefix, i)
				attrs = append(attrs, agl.Attr{Key: p + "id", Value: call.id}, agl.Attr{Key: p + "type", Value: call.kind},
					agl.Attr{Key: p + "name", Value: call.name}, agl.Attr{Key: p + "arguments", Value: call.arguments})
			}
		case value.Kind() == '{' || value.Kind() == '[':
			attrs = append(attrs, agl.Attr{Key: prefix + "." + name, Value: string(value)})
		default:
			attrs = flattenJSON(attrs, prefix+"."+name, value)
		}
	}
	return attrs
}

// text returns a raw string's value, and any other value's JSON text.
func text(raw jsontext.Value) string {
	if raw.Kind() != '"' {
		return string(raw)
	}
	var s string
	if rawjson.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return s
}

func member(object jsontext.Value, name string) string {
	raw, ok := rawjson.Get(object, name)
	if !ok || raw.Kind() == 'n' {
		return ""
	}
	return text(raw)
}

type toolCall struct{ id, kind, name, arguments string }

func toolCallsOf(raw jsontext.Value) []toolCall {
	var calls []toolCall
	for _, call := range jsonElements(raw) {
		function, _ := rawjson.Get(call, "function")
		kind := member(call, "type")
		if kind == "" {
			kind = "function"
		}
		calls = append(calls, toolCall{id: member(call, "id"), kind: kind, name: member(function, "name"), arguments: member(function, "arguments")})
	}
	return calls
}

func (t toolCall) spanAttrs() []agl.Attr {
	return []agl.Attr{
		{Key: "tool.name", Value: t.name}, {Key: "tool.parameters", Value: t.arguments},
		{Key: "tool.call.id", Value: t.id}, {Key: "tool.call.type", Value: t.kind},
	}
}

// chatReply is a chat completion, whole or put together from a stream.
type chatReply struct {
	fields    jsontext.Value // an object of what is not named below
	usage     jsontext.Value
	promptIDs jsontext.Value
	choices   []chatChoice
}

type chatChoice struct {
	message    jsontext.Value // an object
	finish     jsontext.Value
	tokenIDs   jsontext.Value // a list of integers
	logContent jsontext.Value // a list
	logRefusal jsontext.Value
}

// parseReply reads a chat completion.
func parseReply(body []byte) (chatReply, error) {
	raw := jsontext.Value(body)
	var r chatReply
	if !raw.IsValid(rawjson.Options()) || raw.Kind() != '{' {
		return r, errors.New("the model's reply is not a JSON object")
	}
	var oldIDs []jsontext.Value // of servers that list them beside the choices
	for name, value := range agl.Attributes(raw).All() {
		switch name {
		case "usage":
			r.usage = value
		case "prompt_token_ids":
			r.promptIDs = value
		case "response_token_ids":
			oldIDs = jsonElements(value)
		case "choices":
			for _, choice := range jsonElements(value) {
				r.choices = append(r.choices, parseChoice(choice))
			}
		default:
			r.fields = rawjson.Set(r.fields, name, value)
		}
	}
	for i := range r.choices {
		if r.choices[i].tokenIDs == nil && i < len(oldIDs) {
			r.choices[i].tokenIDs = oldIDs[i]
		}
	}
	if r.choices == nil {
		return r, errors.New("the model's reply has no choices")
	}
	return r, nil
}

func parseChoice(raw jsontext.Value) chatChoice {
	var c chatChoice
	c.message, _ = rawjson.Get(raw, "message")
	c.finish, _ = rawjson.Get(raw, "finish_reason")
	c.tokenIDs = tokenIDs(raw)
	if logprobs, ok := rawjson.Get(raw, "logprobs"); ok {
		c.logContent, _ = rawjson.Get(logprobs, "content")
		c.logRefusal, _ = rawjson.Get(logprobs, "refusal")
	}
	return c
}

// tokenIDs finds the token ids of a choice or a chunk of one.
func tokenIDs(choice jsontext.Value) jsontext.Value {
	ids, ok := rawjson.Get(choice, "token_ids")
	if !ok {
		specific, _ := rawjson.Get(choice, "provider_specific_fields")
		ids, _ = rawjson.Get(specific, "token_ids")
	}
	return ids
}

// isIntegers reports whether a raw value is a list of integers with at least
// one.
func isIntegers(raw jsontext.Value) bool {
	if raw.Kind() != '[' {
		return false
	}
	var list []int64
	return rawjson.Unmarshal(raw, &list) == nil && len(list) > 0
}

// attrs returns the gen_ai attributes of the reply, with the token ids and
// log-probabilities of its first choice.
func (r chatReply) attrs() []agl.Attr {
	var attrs []agl.Attr
	for name, value := range agl.Attributes(r.fields).All() {
		attrs = flattenJSON(attrs, agl.AttrGenAIResponse+"."+name, value)
	}
	for i, c := range r.choices {
		prefix := agl.AttrGenAICompletion + "." + strconv.Itoa(i)
		attrs = appendMessage(attrs, prefix, c.message)
		if c.finish != nil && c.finish.Kind() == '"' {
			attrs = append(attrs, agl.Attr{Key: prefix + ".finish_reason", Value: text(c.finish)})
		}
	}
	attrs = appendUsage(attrs, r.usage)
	if isIntegers(r.promptIDs) {
		attrs = append(attrs, agl.Attr{Key: agl.AttrPromptTokenIDs, Value: r.promptIDs})
	}
	if len(r.choices) == 0 {
		return attrs
	}
	first := r.choices[0]
	if isIntegers(first.tokenIDs) {
		attrs = append(attrs, agl.Attr{Key: agl.AttrResponseTokenIDs, Value: first.tokenIDs})
	}
	if first.logContent.Kind() == '[' {
		attrs = append(attrs, agl.Attr{Key: agl.AttrLogprobsContent, Value: string(first.logContent)})
	}
	if first.logRefusal.Kind() == '[' {
		attrs = append(attrs, agl.Attr{Key: agl.AttrLogprobsRefusal, Value: string(first.logRefusal)})
	}
	return attrs
}

// appendUsage gives the token counts both of the names that readers use.
func appendUsage(attrs []agl.Attr, usage jsontext.Value) []agl.Attr {
	for name, value := range agl.Attributes(usage).All() {
		switch name {
		case "prompt_tokens":
			attrs = append(attrs, agl.Attr{Key: agl.AttrGenAIInputTokens, Value: value})
		case "completion_tokens":
			attrs = append(attrs, agl.Attr{Key: agl.AttrGenAIOutputTokens, Value: value})
		}
		attrs = flattenJSON(attrs, "gen_ai.usage."+name, value)
	}
	return attrs
}

func (r chatReply) toolCalls() []toolCall {
	var calls []toolCall
	for _, c := range r.choices {
		if raw, ok := rawjson.Get(c.message, "tool_calls"); ok {
			calls = append(calls, toolCallsOf(raw)...)
		}
	}
	return calls
}
