package anthropic

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/agl-go/agl/proxy/openai"
	"github.com/go-json-experiment/json"
)

const (
	// defaultMaxTokens is asked for where a chat request names no limit, which
	// Messages require. Every model takes it.
	defaultMaxTokens = 4096
	// minBudget is the least budget of thinking tokens that is taken.
	minBudget = 1024
	// highBudget is the budget of high effort.
	highBudget = 32768
)

// FromChat returns the request for a message that asks what a request for a chat
// completion asks. System and developer messages at the start become the system
// prompt. Without a limit, 4,096 tokens are asked for. Efforts become budgets
// of thinking tokens (low 4,096, medium 16,384, high 32,768), within the limit.
// Fields that say what is so anyway, such as n of 1, are left out; those that
// would change the reply, and that Messages lack, are refused.
func FromChat(body []byte) ([]byte, error) {
	var in chatRequest
	if err := json.Unmarshal(body, &in, lenient); err != nil {
		return nil, openai.DecodeError(err)
	}
	out := request{
		Model: in.Model, Stream: in.Stream, Temperature: in.Temperature, TopP: in.TopP,
		StopSequences: in.Stop,
	}
	if in.Stop.Kind() == '"' {
		out.StopSequences = append(append([]byte{'['}, in.Stop...), ']')
	}
	if given(in.User) {
		out.Metadata = &metadata{UserID: in.User}
	}
	if given(in.ChatTemplateKwargs) {
		return nil, openai.Unsupported("chat_template_kwargs", "this backend has no chat template to give them to")
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
	return appendJSON(nil, &out)
}

// chatRest looks through the members that are not translated.
func chatRest(members raw) (raw, error) {
	kept := []byte{'{'}
	var err error
	openai.Members(members, func(name, value []byte) {
		key, v := string(name), string(value)
		switch key {
		case "store", "metadata", "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "prediction":
			return // nothing that the model is asked
		case "n":
			if v == "1" {
				return
			}
		case "logprobs":
			if v == "false" {
				return
			}
		case "frequency_penalty", "presence_penalty", "top_logprobs":
			if n, e := strconv.ParseFloat(v, 64); e == nil && n == 0 {
				return
			}
		case "logit_bias", "functions", "seed", "function_call", "audio", "web_search_options", "verbosity":
		case "modalities":
			if v == `["text"]` {
				return
			}
		default:
			if len(kept) > 1 {
				kept = append(kept, ',')
			}
			kept = append(append(append(append(kept, '"'), name...), `":`...), value...)
			return
		}
		if v != "null" && v != "{}" && v != "[]" && err == nil {
			err = openai.Unsupported(key, "got %s: this backend has nothing like it", v)
		}
	})
	if len(kept) == 1 {
		return nil, err
	}
	return append(kept, '}'), err
}

func messageLimits(in *chatRequest, out *request) error {
	limit, field := in.MaxCompletionTokens, "max_completion_tokens"
	if !given(limit) {
		limit, field = in.MaxTokens, "max_tokens"
	}
	budget := int64(0)
	switch effort := unquote(in.ReasoningEffort); effort {
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
	if !given(limit) {
		out.MaxTokens = strconv.AppendInt(nil, defaultMaxTokens+budget, 10)
	}
	if budget == 0 {
		return nil
	}
	most, err := strconv.ParseInt(string(out.MaxTokens), 10, 64)
	if err != nil || most <= minBudget {
		return openai.Unsupported(field, "got %s, must be more than %d where there is a reasoning_effort, as thinking counts", out.MaxTokens, minBudget)
	}
	out.Thinking = &thinking{Type: "enabled", BudgetTokens: min(budget, most-1)}
	return nil
}

func messageTools(in *chatRequest, out *request) error {
	for i, t := range in.Tools {
		if t.Type != "function" || t.Function == nil {
			return openai.Unsupported(fmt.Sprintf("tools[%d].type", i), "got %q, must be function for this backend", t.Type)
		}
		schema := t.Function.Parameters
		if !given(schema) {
			schema = raw(`{"type":"object","properties":{}}`)
		}
		out.Tools = append(out.Tools, tool{Name: t.Function.Name, Description: t.Function.Description, InputSchema: schema, Strict: t.Function.Strict})
	}
	var choice *toolChoice
	switch {
	case !given(in.ToolChoice):
	case in.ToolChoice.Kind() == '"':
		switch s := unquote(in.ToolChoice); s {
		case "auto", "none":
			choice = &toolChoice{Type: s}
		case "required":
			choice = &toolChoice{Type: "any"}
		default:
			return openai.Unsupported("tool_choice", "got %q, must be auto, required, none or a function", s)
		}
	default:
		var named chatTool
		if err := json.Unmarshal(in.ToolChoice, &named, lenient); err != nil || named.Type != "function" || named.Function == nil {
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
func messageTurns(in *chatRequest, out *request) error {
	var system []block
	var results []block // of tools, since the last assistant's turn
	flush := func() error {
		if len(results) == 0 {
			return nil
		}
		content, err := appendJSON(nil, results)
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
				return openai.Unsupported(at+".role", "got %q behind the start, where this backend has no place for it", m.Role)
			}
			system = append(system, list...)
			continue
		case "user":
		case "assistant":
			list = assistantBlocks(m, list)
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

// contentBlocks translates a message's content. Empty texts, which Messages do
// not take, are left out.
func contentBlocks(content raw, field string) ([]block, error) {
	switch {
	case !given(content):
		return nil, nil
	case content.Kind() == '"':
		if !text(content) {
			return nil, nil
		}
		return []block{{Type: "text", Text: content}}, nil
	}
	var parts []chatPart
	if err := json.Unmarshal(content, &parts, lenient); err != nil {
		return nil, openai.Unsupported(field, "must be a string or a list of parts (%v)", err)
	}
	list := make([]block, 0, len(parts))
	for i, p := range parts {
		switch {
		case p.Type == "text" || p.Type == "refusal":
			for _, t := range []raw{p.Text, p.Refusal} {
				if text(t) {
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
	if rest, ok := strings.CutPrefix(unquote(url), "data:"); ok {
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
	return appendJSON(nil, list)
}

func assistantBlocks(m *chatMessage, said []block) []block {
	list := make([]block, 0, len(m.ThinkingBlocks)+len(said)+len(m.ToolCalls))
	for _, b := range m.ThinkingBlocks {
		b.Index = nil
		list = append(list, b)
	}
	list = append(list, said...)
	if text(m.Refusal) {
		list = append(list, block{Type: "text", Text: m.Refusal})
	}
	for _, call := range m.ToolCalls {
		list = append(list, block{Type: "tool_use", ID: call.ID, Name: call.Function.Name, Input: input(call.Function.Arguments)})
	}
	return list
}

// blocksContent makes content of blocks: one text is a string.
func blocksContent(list []block) (raw, error) {
	switch {
	case len(list) == 0:
		return raw(`""`), nil
	case len(list) == 1 && list[0].Type == "text":
		return list[0].Text, nil
	}
	return appendJSON(nil, list)
}
