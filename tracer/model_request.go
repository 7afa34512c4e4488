package tracer

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/record"
)

// requestAttrs returns the gen_ai attributes of a request. If its body is not a JSON object, they name only the system and
// the operation.
func requestAttrs(form record.Form, body []byte) []agl.Attr {
	system, operation := "openai", "chat"
	switch form {
	case record.Completion:
		operation = "text_completion"
	case record.Messages:
		system = "anthropic"
	case record.Chat, record.Responses:
	}
	attrs := []agl.Attr{{Key: agl.AttrGenAISystem, Value: system}, {Key: agl.AttrGenAIOperation, Value: operation}}
	if !isObject(body) {
		return attrs
	}
	messages := 0
	// Instructions come before all messages, wherever they are in the body.
	for _, instructions := range []bool{true, false} {
		for name, value := range agl.Attributes(body).All() {
			isInstructions := form != record.Chat && (name == "system" || name == "instructions")
			switch {
			case isInstructions != instructions:
			case record.ChatMessages(form, name, value, func(message []byte) {
				attrs = appendMessage(attrs, agl.AttrGenAIPrompt+"."+strconv.Itoa(messages), message)
				messages++
			}):
			case name == "tools":
				attrs = appendTools(attrs, value)
			default:
				attrs = flattenJSON(attrs, agl.AttrGenAIRequest+"."+name, value)
			}
		}
	}
	return attrs
}

// appendTools describes the functions that the model may call.
func appendTools(attrs []agl.Attr, tools jsontext.Value) []agl.Attr {
	n := 0
	for _, tool := range jsonElements(tools) {
		function, ok := rawjson.Get(tool, "function")
		if !ok {
			function = tool // of Responses and Messages
		}
		name, named := rawjson.Get(function, "name")
		if !named {
			continue
		}
		prefix := fmt.Sprintf("%s.functions.%d.", agl.AttrGenAIRequest, n)
		n++
		attrs = append(attrs, agl.Attr{Key: prefix + "name", Value: rawjson.Text(name)})
		if description, ok := rawjson.Get(function, "description"); ok {
			attrs = append(attrs, agl.Attr{Key: prefix + "description", Value: rawjson.Text(description)})
		}
		parameters, ok := rawjson.Get(function, "parameters")
		if !ok {
			if parameters, ok = rawjson.Get(function, "input_schema"); !ok {
				parameters = jsontext.Value("{}")
			}
		}
		attrs = append(attrs, agl.Attr{Key: prefix + "parameters", Value: string(parameters)})
	}
	return attrs
}

// appendMessage describes one chat message under the prefix. Lists and objects,
// such as content in parts, are kept as their JSON text.
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

// member returns a member of an object as text, "" if there is none.
func member(object jsontext.Value, name string) string {
	raw, ok := rawjson.Get(object, name)
	if !ok || raw.Kind() == 'n' {
		return ""
	}
	return rawjson.Text(raw)
}

type toolCall struct{ id, kind, name, arguments string }

func toolCallsOf(raw jsontext.Value) []toolCall {
	var calls []toolCall
	for _, call := range jsonElements(raw) {
		function, _ := rawjson.Get(call, "function")
		calls = append(calls, toolCall{id: member(call, "id"), kind: cmp.Or(member(call, "type"), "function"), name: member(function, "name"), arguments: member(function, "arguments")})
	}
	return calls
}

func (t toolCall) spanAttrs() []agl.Attr {
	return []agl.Attr{
		{Key: "tool.name", Value: t.name}, {Key: "tool.parameters", Value: t.arguments},
		{Key: "tool.call.id", Value: t.id}, {Key: "tool.call.type", Value: t.kind},
	}
}
