package adapter

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Conversation is a chat in the form of OpenAI's fine-tuning files.
type Conversation struct {
	Messages []Message `json:"messages"`
	Tools    []Tool    `json:"tools"` // nil, null in JSON, when the request named none
}

// MarshalJSONTo writes the conversation.
func (c Conversation) MarshalJSONTo(enc *jsontext.Encoder) error {
	type plain Conversation
	return json.MarshalEncode(enc, plain(c), json.FormatNilSliceAsNull(true))
}

// Message is a chat message.
type Message struct {
	// Role is one of system, developer, user, assistant and tool.
	Role string `json:"role"`
	// Content is a string, a list of parts, or null.
	Content jsontext.Value `json:"content"`
	// ToolCalls are the calls that an assistant makes.
	ToolCalls []ToolCall `json:"tool_calls,omitzero"`
	// ToolCallID is the call that a tool answers, "" for other roles.
	ToolCallID string `json:"tool_call_id,omitzero"`
}

// ToolCall is an assistant's call of a function.
type ToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function FunctionCall `json:"function"`
}

// FunctionCall names a function and its arguments, JSON as text.
type FunctionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Tool is a function that an assistant may call.
type Tool struct {
	Type     string   `json:"type"`
	Function Function `json:"function"`
}

// Function describes a function. Parameters is a JSON schema.
type Function struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
}

// Messages reads a conversation from each span that has gen_ai.prompt,
// gen_ai.completion, gen_ai.request or gen_ai.response attributes, in the order
// given: the prompt's messages, then the assistant's completions. The tool calls
// of a completion are the children of its span that have tool attributes.
type Messages struct{}

// Adapt reads the conversations. Errors have code agl.CodeInvalid.
func (Messages) Adapt(spans []agl.Span) ([]Conversation, error) {
	children := make(map[string][]*agl.Span)
	for i := range spans {
		if parent := spans[i].ParentID; parent.Valid {
			children[parent.V] = append(children[parent.V], &spans[i])
		}
	}
	conversations := []Conversation{}
	for i := range spans {
		span := &spans[i]
		recorded, err := readRecordedChat(span)
		if err != nil {
			return nil, spanError(span, err)
		}
		if recorded == nil {
			continue
		}
		if recorded.tools, err = recordedTools(children[span.SpanID]); err != nil {
			return nil, err
		}
		conversation, err := recorded.conversation()
		if err != nil {
			return nil, spanError(span, err)
		}
		conversations = append(conversations, conversation)
	}
	return conversations, nil
}

// recordedChat is a chat as it stands in the attributes of spans.
type recordedChat struct {
	prompt, completion *nested // lists
	request            *nested // an object
	tools              []*nested
}

// readRecordedChat returns nil when the span records no chat.
func readRecordedChat(span *agl.Span) (*recordedChat, error) {
	prefixes := [...]struct {
		name   string
		isList bool
	}{
		{agl.AttrGenAIPrompt, true},
		{agl.AttrGenAICompletion, true},
		{agl.AttrGenAIRequest, false},
		{agl.AttrGenAIResponse, false},
	}
	attrs := parseAttributes(span.Attributes)
	var parts [len(prefixes)]*nested
	recorded := false
	for i, prefix := range prefixes {
		part, err := attrs.below(prefix.name).group(0)
		if err != nil {
			return nil, err
		}
		if part.empty() {
			part = &nested{isList: prefix.isList}
		} else {
			recorded = true
		}
		if part.isList != prefix.isList {
			kinds := map[bool]string{true: "a list, with keys .0, .1, …", false: "an object, without numbers as keys"}
			return nil, agl.Errorf(agl.CodeInvalid, "attributes %s: got %s, must be %s", prefix.name, part.json(), kinds[prefix.isList])
		}
		parts[i] = part
	}
	if !recorded {
		return nil, nil //nolint:nilnil // no chat is no fault
	}
	return &recordedChat{prompt: parts[0], completion: parts[1], request: parts[2]}, nil
}

// recordedTools returns the tool attributes of spans that have any.
func recordedTools(spans []*agl.Span) ([]*nested, error) {
	var tools []*nested
	for _, span := range spans {
		tool, err := parseAttributes(span.Attributes).below("tool").group(0)
		if err != nil {
			return nil, spanError(span, err)
		}
		if tool.isList {
			return nil, spanError(span, agl.Errorf(agl.CodeInvalid, "attributes tool: got %s, must be an object, without numbers as keys", tool.json()))
		}
		if !tool.empty() {
			tools = append(tools, tool)
		}
	}
	return tools, nil
}

func (r *recordedChat) conversation() (Conversation, error) {
	c := Conversation{Messages: []Message{}}
	for i, recorded := range r.prompt.list {
		message, err := promptMessage(agl.AttrGenAIPrompt+"."+strconv.Itoa(i), recorded)
		if err != nil {
			return c, err
		}
		c.Messages = append(c.Messages, message)
	}
	for _, recorded := range r.completion.list {
		if role, _ := recorded.get("role").str(); role != "assistant" {
			continue
		}
		message := Message{Role: "assistant", Content: recorded.get("content").json()}
		for _, tool := range r.tools {
			call, err := completionToolCall(tool)
			if err != nil {
				return c, err
			}
			message.ToolCalls = append(message.ToolCalls, call)
		}
		c.Messages = append(c.Messages, message)
	}
	functions := r.request.get("functions")
	if functions == nil {
		return c, nil
	}
	if !functions.isList {
		return c, agl.Errorf(agl.CodeInvalid, "attributes gen_ai.request.functions: got %s, must be a list, with keys .0, .1, …", functions.json())
	}
	c.Tools = []Tool{}
	for i, recorded := range functions.list {
		tool, err := requestTool("gen_ai.request.functions."+strconv.Itoa(i), recorded)
		if err != nil {
			return c, err
		}
		c.Tools = append(c.Tools, tool)
	}
	return c, nil
}

func promptMessage(field string, recorded *nested) (Message, error) {
	role, err := requireString(field, recorded, "role")
	if err != nil {
		return Message{}, err
	}
	if calls := recorded.get("tool_calls"); role == "assistant" && calls != nil {
		return assistantCalls(field+".tool_calls", calls)
	}
	message := Message{Role: role, Content: jsontext.Value(`""`)}
	if content := recorded.get("content"); content != nil {
		message.Content = content.json()
	}
	if kind := message.Content.Kind(); kind != '"' && kind != '[' {
		return Message{}, agl.Errorf(agl.CodeInvalid, "attribute %s.content: got %s, must be a string or a list of parts", field, message.Content)
	}
	switch role {
	case "system", "developer", "user", "assistant":
		return message, nil
	case "tool":
		message.ToolCallID, err = requireString(field, recorded, "tool_call_id")
		return message, err
	default:
		return Message{}, agl.Errorf(agl.CodeInvalid, "attribute %s.role: got %q, allowed are system, developer, user, assistant, tool", field, role)
	}
}

// assistantCalls makes an assistant's message of the tool calls that a prompt
// records.
func assistantCalls(field string, recorded *nested) (Message, error) {
	message := Message{Role: "assistant", Content: jsontext.Value("null"), ToolCalls: []ToolCall{}}
	if !recorded.isList {
		return message, agl.Errorf(agl.CodeInvalid, "attributes %s: got %s, must be a list, with keys .0, .1, …", field, recorded.json())
	}
	for i, one := range recorded.list {
		call := ToolCall{Type: "function"}
		at := field + "." + strconv.Itoa(i)
		var err error
		if call.ID, err = requireString(at, one, "id"); err != nil {
			return message, err
		}
		if call.Function.Name, err = requireString(at, one, "name"); err != nil {
			return message, err
		}
		if call.Function.Arguments, err = requireText(at, one, "arguments"); err != nil {
			return message, err
		}
		message.ToolCalls = append(message.ToolCalls, call)
	}
	return message, nil
}

// completionToolCall makes a tool call of the attributes of a tool's span.
func completionToolCall(tool *nested) (ToolCall, error) {
	var call ToolCall
	var err error
	if call.Function.Name, err = requireString("tool", tool, "name"); err != nil {
		return call, err
	}
	if call.Function.Arguments, err = requireText("tool", tool, "parameters"); err != nil {
		return call, err
	}
	if call.ID, err = requireString("tool.call", tool.get("call"), "id"); err != nil {
		return call, err
	}
	call.Type, err = requireString("tool.call", tool.get("call"), "type")
	return call, err
}

// requestTool makes a tool of a function that a request records.
func requestTool(field string, recorded *nested) (Tool, error) {
	tool := Tool{Type: "function"}
	name, err := requireString(field, recorded, "name")
	if err != nil {
		return tool, err
	}
	tool.Function.Name = name
	if recorded.get("description") != nil {
		if tool.Function.Description, err = requireString(field, recorded, "description"); err != nil {
			return tool, err
		}
	}
	parameters := recorded.get("parameters")
	if parameters == nil {
		return tool, agl.Errorf(agl.CodeInvalid, "attribute %s.parameters is missing", field)
	}
	tool.Function.Parameters = parameters.json()
	if text, ok := parameters.str(); ok {
		tool.Function.Parameters = jsontext.Value(text)
		if !tool.Function.Parameters.IsValid(jsontext.AllowDuplicateNames(true)) {
			return tool, agl.Errorf(agl.CodeInvalid, "attribute %s.parameters: got %.100q, must be JSON", field, text)
		}
	}
	return tool, nil
}

func requireString(field string, object *nested, key string) (string, error) {
	value := object.get(key)
	if value == nil {
		return "", agl.Errorf(agl.CodeInvalid, "attribute %s.%s is missing", field, key)
	}
	text, ok := value.str()
	if !ok {
		return "", agl.Errorf(agl.CodeInvalid, "attribute %s.%s: got %s, must be a string", field, key, value.json())
	}
	return text, nil
}

// requireText returns a string as it is and any other value as JSON text.
func requireText(field string, object *nested, key string) (string, error) {
	value := object.get(key)
	if value == nil {
		return "", agl.Errorf(agl.CodeInvalid, "attribute %s.%s is missing", field, key)
	}
	if text, ok := value.str(); ok {
		return text, nil
	}
	return string(value.json()), nil
}
