package anthropic

import (
	"fmt"
	"strings"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/go-json-experiment/json/jsontext"
)

// ChatOptions describes a backend of Chat Completions.
type ChatOptions struct {
	// Hosted is set for services like OpenAI's own, which have max_completion_tokens
	// and reasoning_effort. Inference engines have max_tokens, and switch thinking with
	// chat_template_kwargs.enable_thinking.
	Hosted bool
}

// ToChat translates a request for a message into one for a chat completion. Unknown
// members are kept, so that parameters of inference engines reach them. Tool definitions
// and tool results are copied byte for byte. A stream is requested with its usage.
//
//   - A failed tool result begins with "Error: ", because chat has no flag for it.
//   - Images of tool results follow in a user message, the only place in which every
//     backend accepts them.
//   - A budget of thinking tokens becomes an effort (low to 4,096, medium to
//     16,384, high beyond) at hosted services; engines only switch thinking on.
//   - A text of the assistant at the end is continued by engines that know
//     continue_final_message, such as vLLM and SGLang.
//   - Tool arguments that were not JSON, which [ChatReply.Reply] wraps in
//     {"INVALID_JSON": …}, are unwrapped.
func ToChat(body []byte, o ChatOptions) ([]byte, error) {
	var in request
	if err := rawjson.Unmarshal(body, &in); err != nil {
		return nil, openai.DecodeError(err)
	}
	out := openai.ChatRequest{
		Model: in.Model, Stop: in.StopSequences, Stream: in.Stream, Temperature: in.Temperature, TopP: in.TopP,
	}
	if o.Hosted {
		out.MaxCompletionTokens = in.MaxTokens
	} else {
		out.MaxTokens = in.MaxTokens
	}
	if string(in.Stream) == "true" {
		out.StreamOptions = raw(`{"include_usage":true}`)
	}
	if in.Metadata != nil {
		out.User = in.Metadata.UserID
	}
	var err error
	if out.Rest, err = rest(in.Rest); err != nil {
		return nil, err
	}
	if err := chatTools(&in, &out); err != nil {
		return nil, err
	}
	if err := chatThinking(&in, &out, o); err != nil {
		return nil, err
	}
	if err := chatOutput(&in, &out); err != nil {
		return nil, err
	}
	if openai.Given(in.System) {
		content, err := textContent(in.System, "system")
		if err != nil {
			return nil, err
		}
		out.Messages = append(out.Messages, openai.ChatMessage{Role: "system", Content: content})
	}
	for i, m := range in.Messages {
		if out.Messages, err = chatMessages(out.Messages, m, fmt.Sprintf("messages[%d]", i)); err != nil {
			return nil, err
		}
	}
	if n := len(out.Messages); n > 0 && !o.Hosted {
		out.Rest = continued(out.Rest, &out.Messages[n-1])
	}
	return openai.AppendWire(nil, &out)
}

// continued has an engine go on with a text of the assistant at the end, as Anthropic does, unless the request says itself what becomes of it.
func continued(rest raw, last *openai.ChatMessage) raw {
	_, prompted := rawjson.Get(rest, "add_generation_prompt")
	_, said := rawjson.Get(rest, "continue_final_message")
	if prompted || said || last.Role != "assistant" || len(last.ToolCalls) > 0 || !openai.Given(last.Content) {
		return rest
	}
	return rawjson.Set(rawjson.Set(rest, "add_generation_prompt", raw("false")), "continue_final_message", raw("true"))
}

// rest keeps the members that a backend may know. Members that concern Anthropic's own
// service and not the model are dropped. Members that concern the model and that no
// other service has are refused.
func rest(members raw) (raw, error) {
	var err error
	kept := openai.KeepMembers(members, func(name string, value raw) bool {
		switch name {
		case "cache_control", "service_tier", "inference_geo", "context_management", "speed":
			return false
		case "container", "mcp_servers":
			if s := string(value); s != "null" && s != "[]" {
				err = openai.Unsupported(name, "not supported by this backend")
			}
			return false
		}
		return true
	})
	return kept, err
}

func chatTools(in *request, out *openai.ChatRequest) error {
	for i, t := range in.Tools {
		if t.Type != "" && t.Type != "custom" {
			return openai.Unsupported(fmt.Sprintf("tools[%d].type", i), "got %q: this backend has no tools that run at Anthropic, only custom ones", t.Type)
		}
		out.Tools = append(out.Tools, openai.ChatTool{Type: "function", Function: &openai.ChatFunction{
			Name: t.Name, Description: t.Description, Parameters: t.InputSchema, Strict: t.Strict,
		}})
	}
	c := in.ToolChoice
	if c == nil {
		return nil
	}
	switch c.Type {
	case "auto", "none":
		out.ToolChoice = openai.Quote(c.Type)
	case "any":
		out.ToolChoice = openai.Quote("required")
	case "tool":
		choice, err := openai.AppendWire(nil, &openai.ChatTool{Type: "function", Function: &openai.ChatFunction{Name: c.Name}})
		if err != nil {
			return err
		}
		out.ToolChoice = choice
	default:
		return openai.Unsupported("tool_choice.type", "got %q, must be auto, any, tool or none", c.Type)
	}
	if c.DisableParallel {
		out.ParallelToolCalls = new(bool)
	}
	return nil
}

// The largest budgets of thinking tokens that count as low and as medium effort.
const (
	lowBudget    = 4096
	mediumBudget = 16384
)

func chatThinking(in *request, out *openai.ChatRequest, o ChatOptions) error {
	t := in.Thinking
	if t == nil {
		return nil
	}
	enabled := false
	switch t.Type {
	case "adaptive":
		return nil
	case "enabled":
		enabled = true
	case "disabled":
	default:
		return openai.Unsupported("thinking.type", "got %q, must be enabled, disabled or adaptive", t.Type)
	}
	switch {
	case !o.Hosted:
		if !strings.Contains(string(out.Rest), `"chat_template_kwargs"`) {
			out.ChatTemplateKwargs = fmt.Appendf(nil, `{"enable_thinking":%t}`, enabled)
		}
	case !enabled:
	case t.BudgetTokens <= lowBudget:
		out.ReasoningEffort = openai.Quote("low")
	case t.BudgetTokens <= mediumBudget:
		out.ReasoningEffort = openai.Quote("medium")
	default:
		out.ReasoningEffort = openai.Quote("high")
	}
	return nil
}

func chatOutput(in *request, out *openai.ChatRequest) error {
	c := in.OutputConfig
	if c == nil {
		return nil
	}
	switch c.Effort {
	case "":
	case "low", "medium", "high":
		out.ReasoningEffort = openai.Quote(c.Effort)
	default:
		out.ReasoningEffort = openai.Quote("high") // the highest of Chat Completions
	}
	switch {
	case c.Format == nil:
	case c.Format.Type == "json_schema":
		out.ResponseFormat = &openai.ChatFormat{Type: "json_schema", JSONSchema: &openai.ChatSchema{Name: raw(`"output"`), Schema: c.Format.Schema, Strict: raw("true")}}
	default:
		return openai.Unsupported("output_config.format.type", "got %q, must be json_schema", c.Format.Type)
	}
	return nil
}

// blocks decodes content that is not a string.
func blocks(content raw, field string) ([]block, error) {
	var list []block
	err := openai.DecodeList(content, &list, field, "a string or a list of content blocks")
	return list, err
}

// textContent translates content that may only be text.
func textContent(content raw, field string) (raw, error) {
	if content.Kind() == '"' {
		return content, nil
	}
	list, err := blocks(content, field)
	if err != nil {
		return nil, err
	}
	parts := make([]openai.ChatPart, 0, len(list))
	for i, b := range list {
		if b.Type != "text" {
			return nil, openai.Unsupported(fmt.Sprintf("%s[%d].type", field, i), "got %q, must be text for this backend", b.Type)
		}
		part, err := textPart(b, fmt.Sprintf("%s[%d]", field, i))
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return openai.PartsContent(parts)
}

func chatMessages(to []openai.ChatMessage, m message, field string) ([]openai.ChatMessage, error) {
	field += ".content"
	switch m.Role {
	case "user", "assistant", "system":
	default:
		return nil, openai.Unsupported(strings.TrimSuffix(field, "content")+"role", "got %q, must be user or assistant", m.Role)
	}
	if m.Content.Kind() == '"' {
		return append(to, openai.ChatMessage{Role: m.Role, Content: m.Content}), nil
	}
	list, err := blocks(m.Content, field)
	if err != nil {
		return nil, err
	}
	if m.Role == "assistant" {
		out, err := assistantMessage(list, field)
		return append(to, out), err
	}
	return userMessages(to, m.Role, list, field)
}

// userMessages translates a user's turn: first the tool results, which must follow the message
// with the calls, then the user's own content.
func userMessages(to []openai.ChatMessage, role string, list []block, field string) ([]openai.ChatMessage, error) {
	var parts, images []openai.ChatPart
	for i, b := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch b.Type {
		case "text", "image":
			part, err := mediaPart(b, at)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		case "tool_result":
			content, more, err := toolResult(b, at+".content")
			if err != nil {
				return nil, err
			}
			images = append(images, more...)
			to = append(to, openai.ChatMessage{Role: "tool", ToolCallID: b.ToolUseID, Content: content})
		default:
			return nil, openai.Unsupported(at+".type", "got %q, must be text, image or tool_result for this backend", b.Type)
		}
	}
	parts = append(images, parts...)
	if len(parts) == 0 && len(list) > 0 {
		return to, nil
	}
	content, err := openai.PartsContent(parts)
	return append(to, openai.ChatMessage{Role: role, Content: content}), err
}

func textPart(b block, field string) (openai.ChatPart, error) {
	if b.Text.Kind() != '"' {
		return openai.ChatPart{}, openai.Unsupported(field+".text", "must be a string")
	}
	return openai.ChatPart{Type: "text", Text: b.Text}, nil
}

func mediaPart(b block, field string) (openai.ChatPart, error) {
	if b.Type == "image" {
		return imagePart(b, field)
	}
	return textPart(b, field)
}

func imagePart(b block, field string) (openai.ChatPart, error) {
	part := openai.ChatPart{Type: "image_url", ImageURL: &openai.ChatImageURL{}}
	switch s := b.Source; {
	case s != nil && s.Type == "base64":
		part.ImageURL.URL = openai.Quote("data:" + s.MediaType + ";base64," + s.Data)
	case s != nil && s.Type == "url":
		part.ImageURL.URL = s.URL
	default:
		return part, openai.Unsupported(field+".source.type", "must be base64 or url for this backend")
	}
	return part, nil
}

// toolResult translates the result of a tool. Its images are returned separately.
func toolResult(b block, field string) (content raw, images []openai.ChatPart, err error) {
	var parts []openai.ChatPart
	switch {
	case !openai.Given(b.Content):
	case b.Content.Kind() == '"':
		parts = append(parts, openai.ChatPart{Type: "text", Text: b.Content})
	default:
		list, err := blocks(b.Content, field)
		if err != nil {
			return nil, nil, err
		}
		for i, part := range list {
			at := fmt.Sprintf("%s[%d]", field, i)
			switch part.Type {
			case "text":
				said, err := textPart(part, at)
				if err != nil {
					return nil, nil, err
				}
				parts = append(parts, said)
			case "image":
				image, err := imagePart(part, at)
				if err != nil {
					return nil, nil, err
				}
				images = append(images, image)
			default:
				return nil, nil, openai.Unsupported(at+".type", "got %q, must be text or image for this backend", part.Type)
			}
		}
	}
	if b.IsError {
		mark := raw(`"Error: "`)
		if len(parts) == 0 {
			parts = append(parts, openai.ChatPart{Type: "text", Text: mark})
		} else {
			parts[0].Text = openai.Join(mark, parts[0].Text)
		}
	}
	content, err = openai.PartsContent(parts)
	return content, images, err
}

func assistantMessage(list []block, field string) (openai.ChatMessage, error) {
	out := openai.ChatMessage{Role: "assistant"}
	var parts []openai.ChatPart
	for i, b := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch b.Type {
		case "text":
			part, err := textPart(b, at)
			if err != nil {
				return out, err
			}
			parts = append(parts, part)
		case "thinking":
			out.ReasoningContent = openai.Join(out.ReasoningContent, b.Thinking)
		case "tool_use":
			out.ToolCalls = append(out.ToolCalls, openai.ChatCall{ID: b.ID, Type: "function", Function: openai.ChatFunction{Name: b.Name, Arguments: arguments(b.Input)}})
		default:
			return out, openai.Unsupported(at+".type", "got %q, must be text, thinking or tool_use for this backend", b.Type)
		}
	}
	out.Content = null
	if len(parts) > 0 || len(out.ToolCalls) == 0 {
		content, err := openai.PartsContent(parts)
		if err != nil {
			return out, err
		}
		out.Content = content
	}
	return out, nil
}

// invalidJSON is the member for arguments that are not a JSON object. The name is from
// Anthropic's documentation of fine-grained tool streaming.
const invalidJSON = "INVALID_JSON"

// arguments returns a tool's input as chat has it: a string of JSON.
func arguments(input raw) raw {
	if !openai.Given(input) {
		return raw(`"{}"`)
	}
	var wrapped raw
	n := 0
	openai.Members(input, func(name, value []byte) {
		if n++; string(name) == invalidJSON && value[0] == '"' {
			wrapped = value
		}
	})
	if n == 1 && wrapped != nil {
		return wrapped
	}
	return openai.Quote(input)
}

// input is the inverse of [arguments].
func input(arguments raw) raw {
	if arguments.Kind() == '{' { // not a string, but clear
		return arguments
	}
	s := openai.Unquote(arguments)
	if strings.TrimSpace(s) == "" {
		return raw("{}")
	}
	if v := raw(s); v.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) && v.Kind() == '{' {
		return v
	}
	wrapped := append([]byte(`{"`+invalidJSON+`":`), arguments...)
	return append(wrapped, '}')
}
