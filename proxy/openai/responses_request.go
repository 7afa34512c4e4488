package openai

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/go-json-experiment/json/jsontext"
)

// ResponsesToChat translates a request of the Responses API into one for a chat
// completion, and returns the translator of the reply. Text, images, functions,
// custom tools and namespaces with their calls and outputs, reasoning and schemas are translated. What needs the state
// or the tools of OpenAI's own service is refused: previous_response_id, conversation,
// prompt, background, built-in tools. Nothing is stored, whatever the member store
// says. Reasoning is encrypted only in name: encrypted_content has the thinking blocks of
// an Anthropic backend, which it must get again, whether it is asked for or not.
func ResponsesToChat(body []byte, o ResponsesOptions) ([]byte, *ResponseReply, error) {
	var in responsesRequest
	if err := rawjson.Unmarshal(body, &in); err != nil {
		return nil, nil, DecodeError(err)
	}
	out := ChatRequest{
		Model: in.Model, Stream: in.Stream, Temperature: in.Temperature, TopP: in.TopP, User: in.User, ParallelToolCalls: in.ParallelToolCalls,
	}
	if o.Hosted {
		out.MaxCompletionTokens = in.MaxOutputTokens
	} else {
		out.MaxTokens = in.MaxOutputTokens
	}
	if string(in.Stream) == "true" {
		out.StreamOptions = jsontext.Value(`{"include_usage":true}`)
	}
	if in.Reasoning != nil {
		out.ReasoningEffort = in.Reasoning.Effort
	}
	var err error
	if out.Rest, err = responsesRest(&in); err != nil {
		return nil, nil, err
	}
	called, err := responsesTools(&in, &out)
	if err != nil {
		return nil, nil, err
	}
	if err := responsesFormats(&in, &out); err != nil {
		return nil, nil, err
	}
	if Given(in.Instructions) {
		out.Messages = append(out.Messages, ChatMessage{Role: "system", Content: in.Instructions})
	}
	if err := responsesInput(in.Input, &out); err != nil {
		return nil, nil, err
	}
	chat, err := AppendWire(nil, &out)
	return chat, newResponseReply(&in, called, o), err
}

// responsesRest returns the members that are passed on unchanged.
func responsesRest(in *responsesRequest) (jsontext.Value, error) {
	var err error
	logprobs := false
	for i, what := range in.Include {
		switch what {
		case "reasoning.encrypted_content":
		case "message.output_text.logprobs":
			logprobs = true
		default:
			return nil, Unsupported(fmt.Sprintf("include[%d]", i), "got %q: not supported by this backend", what)
		}
	}
	kept := KeepMembers(in.Rest, func(name string, value jsontext.Value) bool {
		v, plain := string(value), "null" // the value that means the default
		advice := "leave it out"
		switch name {
		case "store", "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "stream_options", "max_tool_calls":
			return false // it does not concern the model
		case "background":
			plain = "false"
		case "truncation":
			plain = `"disabled"`
		case "context_management":
		case "previous_response_id", "conversation", "prompt":
			advice = "send the whole input"
		default:
			return v != "null"
		}
		if v != plain && v != "null" && err == nil {
			err = Unsupported(name, "got %s: not supported by this backend, %s", v, advice)
		}
		return false
	})
	if logprobs && err == nil {
		kept = append([]byte(`{"logprobs":true`), tail(kept)...)
	}
	return kept, err
}

// tail returns an object without its opening brace, to follow other members.
func tail(object jsontext.Value) []byte {
	if len(object) == 0 {
		return []byte{'}'}
	}
	return append([]byte{','}, object[1:]...)
}

func responsesTools(in *responsesRequest, out *ChatRequest) (functions, error) {
	called := make(functions)
	if err := called.addAll(out, in.Tools); err != nil {
		return nil, err
	}
	if len(out.Tools) == 0 {
		out.ParallelToolCalls = nil // servers refuse it without tools
	}
	switch choice := Unquote(in.ToolChoice); {
	case !Given(in.ToolChoice):
	case len(out.Tools) == 0 && (choice == "auto" || choice == "none"): // they refuse that, too
	case in.ToolChoice.Kind() == '"':
		out.ToolChoice = in.ToolChoice
	default:
		var named responsesTool
		if err := rawjson.Unmarshal(in.ToolChoice, &named); err != nil || named.Type != "function" && named.Type != "custom" {
			return nil, Unsupported("tool_choice", "got %s, must be auto, required, none, a function or a custom tool", in.ToolChoice)
		}
		choice, err := AppendWire(nil, &ChatTool{Type: "function", Function: &ChatFunction{Name: functionName(named.Namespace, named.Name)}})
		if err != nil {
			return nil, err
		}
		out.ToolChoice = choice
	}
	return called, nil
}

func responsesFormats(in *responsesRequest, out *ChatRequest) error {
	if in.Text == nil {
		return nil
	}
	if Given(in.Text.Verbosity) {
		out.Rest = append(append([]byte(`{"verbosity":`), in.Text.Verbosity...), tail(out.Rest)...)
	}
	f := in.Text.Format
	if f == nil {
		return nil
	}
	switch f.Type {
	case "text":
	case "json_object":
		out.ResponseFormat = &ChatFormat{Type: f.Type}
	case "json_schema":
		out.ResponseFormat = &ChatFormat{Type: f.Type, JSONSchema: &ChatSchema{Name: f.Name, Description: f.Description, Schema: f.Schema, Strict: f.Strict}}
	default:
		return Unsupported("text.format.type", "got %q, must be text, json_object or json_schema", f.Type)
	}
	return nil
}

// responsesInput translates the conversation.
func responsesInput(input jsontext.Value, out *ChatRequest) error {
	if input.Kind() == '"' {
		out.Messages = append(out.Messages, ChatMessage{Role: "user", Content: input})
		return nil
	}
	var items []responsesItem
	if err := DecodeList(input, &items, "input", "a string or a list of items"); err != nil {
		return err
	}
	c := conversation{out: out}
	for i := range items {
		if err := c.add(&items[i], fmt.Sprintf("input[%d]", i)); err != nil {
			return err
		}
	}
	c.flush()
	return nil
}

// conversation collects messages. The items of one turn of the model become one message.
type conversation struct {
	out  *ChatRequest
	turn *ChatMessage // of the model, or nil
}

// begin returns the model's turn.
func (c *conversation) begin() *ChatMessage {
	if c.turn == nil {
		c.turn = &ChatMessage{Role: "assistant"}
	}
	return c.turn
}

// flush ends the model's turn.
func (c *conversation) flush() {
	if c.turn == nil {
		return
	}
	if c.turn.Content == nil {
		c.turn.Content = null
		if len(c.turn.ToolCalls) == 0 {
			c.turn.Content = jsontext.Value(`""`)
		}
	}
	c.out.Messages = append(c.out.Messages, *c.turn)
	c.turn = nil
}

func (c *conversation) add(item *responsesItem, at string) error {
	switch item.Type {
	case "", "message":
		return c.message(item, at)
	case "function_call", "custom_tool_call":
		arguments := item.Arguments
		if item.Type == "custom_tool_call" {
			arguments = argumentsOf(item.Input)
		}
		m := c.begin()
		called := ChatFunction{Name: functionName(item.Namespace, item.Name), Arguments: arguments}
		m.ToolCalls = append(m.ToolCalls, ChatCall{ID: item.CallID, Type: "function", Function: called})
	case "function_call_output", "custom_tool_call_output":
		c.flush()
		content, err := responsesContent(item.Output, at+".output")
		if err != nil {
			return err
		}
		c.out.Messages = append(c.out.Messages, ChatMessage{Role: "tool", ToolCallID: item.CallID, Content: content})
	case "reasoning":
		c.flush()
		said, err := reasoningText(item, at)
		if err != nil {
			return err
		}
		if said != nil {
			c.begin().ReasoningContent = said
		}
		if blocks := thinkingBlocks(item.Encrypted); blocks != nil {
			c.begin().ThinkingBlocks = blocks
		}
	default:
		return Unsupported(at+".type", "got %q, must be message, reasoning, function_call, custom_tool_call or an output of one for this backend", item.Type)
	}
	return nil
}

func (c *conversation) message(item *responsesItem, at string) error {
	content, err := responsesContent(item.Content, at+".content")
	if err != nil {
		return err
	}
	role := item.Role
	switch role {
	case "assistant":
		if c.turn != nil && (c.turn.Content != nil || len(c.turn.ToolCalls) > 0) {
			c.flush()
		}
		c.begin().Content = content
		return nil
	case "developer":
		role = "system" // the name that chat templates know
	case "user", "system":
	default:
		return Unsupported(at+".role", "got %q, must be user, assistant, system or developer", role)
	}
	c.flush()
	c.out.Messages = append(c.out.Messages, ChatMessage{Role: role, Content: content})
	return nil
}

// responsesContent translates content.
func responsesContent(content jsontext.Value, field string) (jsontext.Value, error) {
	if content.Kind() == '"' {
		return content, nil
	}
	var parts []responsesPart
	if err := DecodeList(content, &parts, field, "a string or a list of parts"); err != nil {
		return nil, err
	}
	list := make([]ChatPart, 0, len(parts))
	for i, p := range parts {
		switch {
		case (p.Type == "input_text" || p.Type == "output_text" || p.Type == "text") && p.Text.Kind() == '"':
			list = append(list, ChatPart{Type: "text", Text: p.Text})
		case p.Type == "refusal" && p.Refusal.Kind() == '"':
			list = append(list, ChatPart{Type: "text", Text: p.Refusal})
		case p.Type == "input_image" && Given(p.ImageURL):
			list = append(list, ChatPart{Type: "image_url", ImageURL: &ChatImageURL{URL: p.ImageURL, Detail: p.Detail}})
		default:
			return nil, Unsupported(fmt.Sprintf("%s[%d].type", field, i), "got %q, must be text or an image by its URL for this backend", p.Type)
		}
	}
	return PartsContent(list)
}

// reasoningText returns the plain text of a reasoning item, or else its summary.
func reasoningText(item *responsesItem, field string) (jsontext.Value, error) {
	for _, from := range [...]struct {
		name string
		list jsontext.Value
	}{{"content", item.Content}, {"summary", item.Summary}} {
		if !Given(from.list) {
			continue
		}
		var parts []responsesPart
		if err := DecodeList(from.list, &parts, field+"."+from.name, "a list of texts"); err != nil {
			return nil, err
		}
		var said jsontext.Value
		for _, p := range parts {
			if IsText(p.Text) {
				said = Join(said, p.Text)
			}
		}
		if said != nil {
			return said, nil
		}
	}
	return nil, nil
}

// blocksPrefix begins an encrypted_content that holds thinking blocks. Those of other services have other forms.
const blocksPrefix = "agl-thinking-"

// encryptedBlocks returns the encrypted_content for the inside of a list of thinking blocks.
func encryptedBlocks(inner []byte) jsontext.Value {
	return Quote(blocksPrefix + base64.StdEncoding.EncodeToString(slices.Concat([]byte{'['}, inner, []byte{']'})))
}

// thinkingBlocks is the inverse; nil for other content.
func thinkingBlocks(encrypted jsontext.Value) jsontext.Value {
	text, ours := strings.CutPrefix(Unquote(encrypted), blocksPrefix)
	if !ours {
		return nil
	}
	blocks, err := base64.StdEncoding.DecodeString(text)
	if list := jsontext.Value(blocks); err == nil && list.Kind() == '[' && list.IsValid() {
		return list
	}
	return nil
}
