package anthropic

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

const (
	// defaultMaxTokens is the limit for a chat request without one, because Messages
	// require a limit. Every model accepts it.
	defaultMaxTokens = 4096
	// minBudget is the smallest number of thinking tokens that the API accepts.
	minBudget = 1024
	// highBudget is the number of thinking tokens for high effort.
	highBudget = 32768
)

// FromChat translates a request for a chat completion into one for a message. System and
// developer messages at the start become the system prompt. A request without a limit gets
// 4,096 tokens. reasoning_effort becomes a budget of thinking tokens (low 4,096, medium
// 16,384, high 32,768) within the limit, unless the agent answers the tools of a turn whose thinking blocks it has
// not kept: Messages refuse to think on then. Fields with their default value, such as n of 1,
// are left out. Fields that would change the reply and have no counterpart are refused.
func FromChat(body []byte) ([]byte, error) {
	var in openai.ChatRequest
	if err := rawjson.Unmarshal(body, &in); err != nil {
		return nil, openai.DecodeError(err)
	}
	out := request{
		Model: in.Model, Stream: orNone(in.Stream), Temperature: orNone(in.Temperature), TopP: orNone(in.TopP),
		StopSequences: orNone(in.Stop),
	}
	if in.Stop.Kind() == '"' {
		out.StopSequences = append(append([]byte{'['}, in.Stop...), ']')
	}
	if openai.Given(in.User) {
		out.Metadata = &metadata{UserID: in.User}
	}
	if openai.Given(in.ChatTemplateKwargs) {
		return nil, openai.Unsupported("chat_template_kwargs", "this backend has no chat template")
	}
	var err error
	if out.Rest, err = chatRest(in.Rest); err != nil {
		return nil, err
	}
	if err := messageLimits(&in, &out); err != nil {
		return nil, err
	}
	if err := messageTools(&in, &out); err != nil {
		return nil, err
	}
	if f := in.ResponseFormat; f != nil && f.Type != "text" {
		if f.Type != "json_schema" || f.JSONSchema == nil {
			return nil, openai.Unsupported("response_format.type", "got %q, must be text or json_schema for this backend", f.Type)
		}
		out.OutputConfig = &output{Format: &format{Type: "json_schema", Schema: f.JSONSchema.Schema}}
	}
	if err := messageTurns(&in, &out); err != nil {
		return nil, err
	}
	if resumesUnthought(in.Messages) {
		out.Thinking = nil
	}
	return openai.AppendWire(nil, &out)
}

// orNone returns nothing for null, which OpenAI takes for an absent member and Anthropic refuses.
func orNone(value raw) raw {
	if !openai.Given(value) {
		return nil
	}
	return value
}

// chatRest returns the members that are passed on unchanged.
func chatRest(members raw) (raw, error) {
	var err error
	kept := openai.KeepMembers(members, func(name string, value raw) bool {
		v, plain := string(value), "null" // the value that means the default
		switch name {
		case "store", "metadata", "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "prediction":
			return false // it does not concern the model
		case "n":
			plain = "1"
		case "logprobs":
			plain = "false"
		case "frequency_penalty", "presence_penalty", "top_logprobs":
			if n, e := strconv.ParseFloat(v, 64); e == nil && n == 0 {
				return false
			}
		case "modalities":
			plain = `["text"]`
		case "logit_bias", "functions", "seed", "function_call", "audio", "web_search_options", "verbosity":
		default:
			return v != "null"
		}
		if v != plain && v != "null" && v != "{}" && v != "[]" && err == nil {
			err = openai.Unsupported(name, "got %s: not supported by this backend", v)
		}
		return false
	})
	return kept, err
}

func messageLimits(in *openai.ChatRequest, out *request) error {
	limit, field := in.MaxCompletionTokens, "max_completion_tokens"
	if !openai.Given(limit) {
		limit, field = in.MaxTokens, "max_tokens"
	}
	budget := int64(0)
	switch effort := openai.Unquote(in.ReasoningEffort); effort {
	case "", "none", "minimal":
	case "low":
		budget = lowBudget
	case "medium":
		budget = mediumBudget
	case "high", "xhigh":
		budget = highBudget
	default:
		return openai.Unsupported("reasoning_effort", "got %q, must be none, minimal, low, medium, high or xhigh", effort)
	}
	out.MaxTokens = limit
	if !openai.Given(limit) {
		out.MaxTokens = strconv.AppendInt(nil, defaultMaxTokens+budget, 10)
	}
	if budget == 0 {
		return nil
	}
	most, err := strconv.ParseInt(string(out.MaxTokens), 10, 64)
	if err != nil || most <= minBudget {
		return openai.Unsupported(field, "got %s, must be more than %d where there is a reasoning_effort, because thinking counts", out.MaxTokens, minBudget)
	}
	out.Thinking = &thinking{Type: "enabled", BudgetTokens: min(budget, most-1)}
	return nil
}

// resumesUnthought reports whether a conversation ends with results of tools that a turn without thinking blocks has called.
func resumesUnthought(messages []openai.ChatMessage) bool {
	n := len(messages)
	if n == 0 || messages[n-1].Role != "tool" {
		return false
	}
	for n > 0 && (messages[n-1].Role == "tool" || messages[n-1].Role == "assistant") {
		n--
	}
	blocks := messages[n].ThinkingBlocks
	return !openai.Given(blocks) || string(blocks) == "[]"
}

func messageTools(in *openai.ChatRequest, out *request) error {
	for i, t := range in.Tools {
		if t.Type != "function" || t.Function == nil {
			return openai.Unsupported(fmt.Sprintf("tools[%d].type", i), "got %q, must be function for this backend", t.Type)
		}
		schema := t.Function.Parameters
		if !openai.Given(schema) {
			schema = raw(`{"type":"object","properties":{}}`)
		}
		out.Tools = append(out.Tools, tool{Name: t.Function.Name, Description: orNone(t.Function.Description), InputSchema: schema, Strict: orNone(t.Function.Strict)})
	}
	var choice *toolChoice
	switch {
	case !openai.Given(in.ToolChoice):
	case in.ToolChoice.Kind() == '"':
		switch s := openai.Unquote(in.ToolChoice); s {
		case "auto", "none":
			choice = &toolChoice{Type: s}
		case "required":
			choice = &toolChoice{Type: "any"}
		default:
			return openai.Unsupported("tool_choice", "got %q, must be auto, required, none or a function", s)
		}
	default:
		var named openai.ChatTool
		if err := rawjson.Unmarshal(in.ToolChoice, &named); err != nil || named.Type != "function" || named.Function == nil {
			return openai.Unsupported("tool_choice", "got %s, must be auto, required, none or a function", in.ToolChoice)
		}
		choice = &toolChoice{Type: "tool", Name: named.Function.Name}
	}
	if in.ParallelToolCalls != nil && !*in.ParallelToolCalls && len(in.Tools) > 0 {
		if choice == nil {
			choice = &toolChoice{Type: "auto"}
		}
		choice.DisableParallel = choice.Type != "none"
	}
	out.ToolChoice = choice
	return nil
}

// messageTurns translates the conversation.
func messageTurns(in *openai.ChatRequest, out *request) error {
	var system []block
	var results []block // tool results since the last turn of the assistant
	flush := func() error {
		if len(results) == 0 {
			return nil
		}
		content, err := openai.AppendWire(nil, results)
		out.Messages = append(out.Messages, message{Role: "user", Content: content})
		results = nil
		return err
	}
	for i := range in.Messages {
		m := &in.Messages[i]
		at := fmt.Sprintf("messages[%d]", i)
		if m.Role == "tool" {
			content, err := toolContent(m.Content, at+".content")
			if err != nil {
				return err
			}
			results = append(results, block{Type: "tool_result", ToolUseID: m.ToolCallID, Content: content})
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		list, err := contentBlocks(m.Content, at+".content")
		if err != nil {
			return err
		}
		switch m.Role {
		case "system", "developer":
			if len(out.Messages) > 0 {
				return openai.Unsupported(at+".role", "got %q after the start, which this backend does not support", m.Role)
			}
			system = append(system, list...)
			continue
		case "user":
		case "assistant":
			if list, err = assistantBlocks(m, list, at); err != nil {
				return err
			}
		default:
			return openai.Unsupported(at+".role", "got %q, must be system, developer, user, assistant or tool", m.Role)
		}
		content, err := blocksContent(list)
		if err != nil {
			return err
		}
		out.Messages = append(out.Messages, message{Role: m.Role, Content: content})
	}
	if err := flush(); err != nil {
		return err
	}
	if len(system) > 0 {
		content, err := blocksContent(system)
		out.System = content
		return err
	}
	return nil
}

// contentBlocks translates a message's content. It leaves out empty texts, which Messages
// refuse.
func contentBlocks(content raw, field string) ([]block, error) {
	switch {
	case !openai.Given(content):
		return nil, nil
	case content.Kind() == '"':
		if !openai.IsText(content) {
			return nil, nil
		}
		return []block{{Type: "text", Text: content}}, nil
	}
	var parts []openai.ChatPart
	if err := openai.DecodeList(content, &parts, field, "a string or a list of parts"); err != nil {
		return nil, err
	}
	list := make([]block, 0, len(parts))
	for i, p := range parts {
		switch {
		case p.Type == "text" || p.Type == "refusal":
			for _, t := range []raw{p.Text, p.Refusal} {
				if openai.IsText(t) {
					list = append(list, block{Type: "text", Text: t})
				}
			}
		case p.Type == "image_url" && p.ImageURL != nil:
			list = append(list, imageBlock(p.ImageURL.URL))
		default:
			return nil, openai.Unsupported(fmt.Sprintf("%s[%d].type", field, i), "got %q, must be text or image_url for this backend", p.Type)
		}
	}
	return list, nil
}

func imageBlock(url raw) block {
	if rest, ok := strings.CutPrefix(openai.Unquote(url), "data:"); ok {
		if kind, data, ok := strings.Cut(rest, ";base64,"); ok {
			return block{Type: "image", Source: &source{Type: "base64", MediaType: kind, Data: data}}
		}
	}
	return block{Type: "image", Source: &source{Type: "url", URL: url}}
}

func toolContent(content raw, field string) (raw, error) {
	if content.Kind() == '"' {
		return content, nil
	}
	list, err := contentBlocks(content, field)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return openai.AppendWire(nil, list)
}

func assistantBlocks(m *openai.ChatMessage, said []block, field string) ([]block, error) {
	var list []block
	if openai.Given(m.ThinkingBlocks) {
		if err := openai.DecodeList(m.ThinkingBlocks, &list, field+".thinking_blocks", "a list of thinking blocks"); err != nil {
			return nil, err
		}
	}
	for i := range list {
		list[i].Index = nil
	}
	list = append(list, said...)
	if openai.IsText(m.Refusal) {
		list = append(list, block{Type: "text", Text: m.Refusal})
	}
	for _, call := range m.ToolCalls {
		list = append(list, block{Type: "tool_use", ID: call.ID, Name: call.Function.Name, Input: input(call.Function.Arguments)})
	}
	return list, nil
}

// blocksContent turns blocks into content. A single text becomes a string.
func blocksContent(list []block) (raw, error) {
	switch {
	case len(list) == 0:
		return raw(`""`), nil
	case len(list) == 1 && list[0].Type == "text":
		return list[0].Text, nil
	}
	return openai.AppendWire(nil, list)
}
