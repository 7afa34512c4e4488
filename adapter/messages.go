package adapter

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
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
	// Role is system, developer, user, assistant or tool, or any other role that was recorded without Strict.
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

// Messages reads one conversation from each span that has gen_ai.prompt, gen_ai.completion, gen_ai.request or
// gen_ai.response attributes, in the order of the spans: the prompt's messages, then the assistant's completions. The
// tool calls of a completion are the children of its span that have tool attributes.
type Messages struct {
	// Strict rejects tool messages without a tool_call_id, roles that OpenAI's API does not have, and whatever else it refuses, as the
	// reference does, and leaves out replies without a role. Otherwise they are read as they were sent, since other engines accept
	// them and a call that was refused must not hide the others: what is missing is empty, what is no text is its JSON. Such a reply
	// is the assistant's. A function without parameters then takes none, and tools without a name, such as web_search of the
	// Responses API, are left out.
	Strict bool
	// OwnCalls reads the tool calls that a completion itself records if no child of its span is one, completions of any role,
	// and the text beside the calls of earlier messages. The reference leaves all of these out.
	OwnCalls bool
}

// Attributes returns the names of the attributes that the adapter reads, and that of the reply's id, for [agl.QuerySpansParams].
func (Messages) Attributes() []string {
	return []string{
		agl.AttrGenAIPrompt + "*", agl.AttrGenAICompletion + "*", agl.AttrGenAIRequest + "*", agl.AttrGenAIResponse + "*", "tool*",
	}
}

// Adapt reads the conversations. Errors have code agl.CodeInvalid.
func (m Messages) Adapt(spans []agl.Span) ([]Conversation, error) {
	children := childrenOf(spans)
	conversations := []Conversation{}
	for i := range spans {
		conversation, ok, err := m.of(&spans[i], children[spans[i].SpanID])
		if err != nil {
			return nil, err
		}
		if ok {
			conversations = append(conversations, conversation)
		}
	}
	return conversations, nil
}

// childrenOf returns the spans by the ids of their parents.
func childrenOf(spans []agl.Span) map[string][]*agl.Span {
	children := make(map[string][]*agl.Span)
	for i := range spans {
		if parent := spans[i].ParentID; parent.Valid {
			children[parent.V] = append(children[parent.V], &spans[i])
		}
	}
	return children
}

// of reads the conversation of a span with these children. Ok is false if the span records none.
func (m Messages) of(span *agl.Span, children []*agl.Span) (c Conversation, ok bool, err error) {
	recorded, err := readRecordedChat(span)
	if err != nil {
		return c, false, spanError(span, err)
	}
	if recorded == nil {
		return c, false, nil
	}
	if recorded.tools, err = recordedTools(children); err != nil {
		return c, false, err
	}
	if c, err = recorded.conversation(m); err != nil {
		return c, false, spanError(span, err)
	}
	return c, true, nil
}

// recordedChat is a chat as the attributes of a span record it.
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
		return nil, nil //nolint:nilnil // nil is no chat
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

func (r *recordedChat) conversation(m Messages) (Conversation, error) {
	f := fields{strict: m.Strict, own: m.OwnCalls}
	c := Conversation{Messages: []Message{}}
	for i, recorded := range r.prompt.list {
		c.Messages = append(c.Messages, f.promptMessage(agl.AttrGenAIPrompt+"."+strconv.Itoa(i), recorded))
	}
	for _, recorded := range r.completion.list {
		role, _ := recorded.get("role").str()
		calls := recorded.get("tool_calls")
		bare := !m.Strict && recorded.get("role") == nil && recorded.get("content") != nil // some engines send no role
		own := m.OwnCalls && (recorded.get("content") != nil || calls != nil)
		if role != "assistant" && !bare && !own {
			continue
		}
		message := Message{Role: "assistant", Content: recorded.get("content").json()}
		for _, tool := range r.tools {
			message.ToolCalls = append(message.ToolCalls, f.completionToolCall(tool))
		}
		if m.OwnCalls && len(r.tools) == 0 && calls != nil {
			message.ToolCalls = sentCalls(calls)
		}
		c.Messages = append(c.Messages, message)
	}
	if functions := r.request.get("functions"); functions != nil {
		const field = "gen_ai.request.functions"
		if f.strict {
			f.requireList(field, functions)
		}
		for i, recorded := range functions.list {
			if _, named := recorded.get("name").str(); !m.Strict && !named {
				continue // of the provider's own
			}
			c.Tools = append(c.Tools, f.requestTool(field+"."+strconv.Itoa(i), recorded))
		}
	}
	return c, f.err
}

// fields reads recorded values and keeps the first error.
type fields struct {
	strict bool
	own    bool
	err    error
}

func (f *fields) failf(format string, args ...any) {
	if f.err == nil {
		f.err = agl.Errorf(agl.CodeInvalid, format, args...)
	}
}

func (f *fields) promptMessage(field string, recorded *nested) Message {
	role := f.sentString(field, recorded, "role")
	if calls := recorded.get("tool_calls"); role == "assistant" && calls != nil && (f.strict || calls.isList) {
		message := f.assistantCalls(field+".tool_calls", calls)
		if content := recorded.get("content"); f.own && content != nil {
			message.Content = content.json()
		}
		return message
	}
	message := Message{Role: role, Content: jsontext.Value(`""`)}
	if content := recorded.get("content"); content != nil {
		message.Content = content.json()
	}
	switch kind := message.Content.Kind(); {
	case kind == '"' || kind == '[':
	case !f.strict:
		message.Content = rawjson.AppendString(nil, string(message.Content))
	default:
		f.failf("attribute %s.content: got %s, must be a string or a list of parts", field, message.Content)
	}
	if role == "tool" && (f.strict || recorded.get("tool_call_id") != nil) {
		message.ToolCallID = f.sentString(field, recorded, "tool_call_id")
	}
	if roles := []string{"system", "developer", "user", "assistant", "tool"}; f.strict && !slices.Contains(roles, role) {
		f.failf("attribute %s.role: got %q, allowed are %s", field, role, strings.Join(roles, ", "))
	}
	return message
}

// assistantCalls returns an assistant's message with the tool calls that a prompt records.
func (f *fields) assistantCalls(field string, recorded *nested) Message {
	message := Message{Role: "assistant", Content: rawjson.Null(), ToolCalls: []ToolCall{}}
	if !f.strict {
		message.ToolCalls = append(message.ToolCalls, sentCalls(recorded)...)
		return message
	}
	f.requireList(field, recorded)
	for i, toolCall := range recorded.list {
		at := field + "." + strconv.Itoa(i)
		message.ToolCalls = append(message.ToolCalls, ToolCall{
			ID: f.requireString(at, toolCall, "id"), Type: "function",
			Function: FunctionCall{Name: f.requireString(at, toolCall, "name"), Arguments: f.requireText(at, toolCall, "arguments")},
		})
	}
	return message
}

// sentCalls reads tool calls as they were sent. What the engine has left out is empty.
func sentCalls(recorded *nested) (calls []ToolCall) {
	for _, one := range recorded.list {
		function := FunctionCall{Name: one.get("name").text(), Arguments: one.get("arguments").text()}
		calls = append(calls, ToolCall{ID: one.get("id").text(), Type: "function", Function: function})
	}
	return calls
}

// completionToolCall reads a tool call from the attributes of a tool's span.
func (f *fields) completionToolCall(tool *nested) ToolCall {
	function := FunctionCall{Name: f.requireString("tool", tool, "name"), Arguments: f.requireText("tool", tool, "parameters")}
	call := tool.get("call")
	return ToolCall{ID: f.requireString("tool.call", call, "id"), Type: f.requireString("tool.call", call, "type"), Function: function}
}

// requestTool reads a tool from a function that a request records.
func (f *fields) requestTool(field string, recorded *nested) Tool {
	tool := Tool{Type: "function", Function: Function{Name: f.requireString(field, recorded, "name")}}
	if recorded.get("description") != nil {
		tool.Function.Description = f.sentString(field, recorded, "description")
	}
	if !f.strict && recorded.get("parameters") == nil {
		tool.Function.Parameters = jsontext.Value("{}")
		return tool
	}
	parameters := f.require(field, recorded, "parameters")
	tool.Function.Parameters = parameters.json()
	if text, ok := parameters.str(); ok {
		tool.Function.Parameters = jsontext.Value(text)
		switch valid := tool.Function.Parameters.IsValid(jsontext.AllowDuplicateNames(true)); {
		case valid:
		case !f.strict:
			tool.Function.Parameters = rawjson.AppendString(nil, text)
		default:
			f.failf("attribute %s.parameters: got %.100q, must be JSON", field, text)
		}
	}
	return tool
}

func (f *fields) requireList(field string, value *nested) {
	if !value.isList {
		f.failf("attributes %s: got %s, must be a list, with keys .0, .1, …", field, value.json())
	}
}

func (f *fields) require(field string, object *nested, key string) *nested {
	value := object.get(key)
	if value == nil {
		f.failf("attribute %s.%s is missing", field, key)
	}
	return value
}

func (f *fields) requireString(field string, object *nested, key string) string {
	value := f.require(field, object, key)
	text, ok := value.str()
	if value != nil && !ok {
		f.failf("attribute %s.%s: got %s, must be a string", field, key, value.json())
	}
	return text
}

// sentString is requireString, except that without Strict it is the text of whatever was sent.
func (f *fields) sentString(field string, object *nested, key string) string {
	if f.strict {
		return f.requireString(field, object, key)
	}
	return object.get(key).text()
}

// requireText returns a string as it is and any other value as JSON text.
func (f *fields) requireText(field string, object *nested, key string) string {
	value := f.require(field, object, key)
	if value == nil {
		return ""
	}
	return value.text()
}
