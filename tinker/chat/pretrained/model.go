package pretrained

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/jinja"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/chat/tokenizer"
)

// Files are the contents of a model's files.
type Files struct {
	// Tokenizer is tokenizer.json and Config tokenizer_config.json.
	Tokenizer, Config []byte
	// Template is chat_template.jinja; nil means the chat_template of Config.
	Template []byte
	// Generation is generation_config.json, which may name further tokens that end a reply; nil is none.
	Generation []byte
}

// Open loads a model from a folder as Hugging Face lays it out: tokenizer.json, tokenizer_config.json, and if
// they are there chat_template.jinja and generation_config.json.
func Open(dir string, cfg Config) (*Model, error) {
	var f Files
	for _, file := range []struct {
		name     string
		data     *[]byte
		optional bool
	}{
		{"tokenizer.json", &f.Tokenizer, false},
		{"tokenizer_config.json", &f.Config, false},
		{"chat_template.jinja", &f.Template, true},
		{"generation_config.json", &f.Generation, true},
	} {
		data, err := os.ReadFile(filepath.Join(dir, file.name))
		switch {
		case err == nil:
			*file.data = data
		case !file.optional || !errors.Is(err, fs.ErrNotExist):
			return nil, agl.Errorf(agl.CodeNotFound, "model: %w", err)
		}
	}
	return Load(f, cfg)
}

// Config says what [Load] should not find out by itself.
type Config struct {
	// Style is how the model writes tool calls; [StyleAuto] is found out from the template.
	Style Style
	// Stop are further tokens that end a reply, as texts. The end of sequence of the model, and what its
	// template puts behind a message of the assistant, are known.
	Stop []string
	// Limits bound what rendering may take; zero fields mean jinja's defaults.
	Limits jinja.Limits
	// Turns is how many prompts, with their replies, are remembered, so that later ones continue their tokens; zero
	// means 1024. They take at most 256 MiB.
	Turns int
	// Logger is told why a prompt does not continue an earlier turn; nil discards.
	Logger *slog.Logger
}

// Model is the chat format of a model. It implements chat.Renderer, chat.Streamer and chat.Rememberer, and is
// safe for concurrent use.
type Model struct {
	tok      *tokenizer.Tokenizer
	template *Template
	style    Style
	thinks   bool
	// opensReasoning says that the template itself begins the reasoning of a reply.
	opensReasoning bool
	form           form
	stops          map[int32]bool
	turns          turns
	logger         *slog.Logger
}

// form is how the template wants to see what the OpenAI form leaves open.
type form struct {
	argumentsAsObject bool // of tool calls; else as text
	nullContent       bool // of a message of calls alone; else ""
	partsAsText       bool // content that is a list of parts is joined to one text
}

// specialNames are the tokens that templates know by name.
func specialNames() []string {
	return []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}
}

// Load makes the chat format of a model. What cannot be followed exactly is agl.CodeInvalid.
func Load(f Files, cfg Config) (*Model, error) {
	if err := cfg.Style.validate(); err != nil {
		return nil, err
	}
	if cfg.Turns < 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "pretrained: Config.Turns is %d; it may not be negative", cfg.Turns)
	}
	tok, err := tokenizer.Load(f.Tokenizer)
	if err != nil {
		return nil, err
	}
	source, special, err := readConfig(f)
	if err != nil {
		return nil, err
	}
	template, err := NewTemplate(TemplateConfig{Source: source, Special: special, Limits: cfg.Limits})
	if err != nil {
		return nil, err
	}
	m := &Model{tok: tok, template: template, style: cfg.Style, stops: map[int32]bool{}, logger: cfg.Logger}
	if m.logger == nil {
		m.logger = slog.New(slog.DiscardHandler)
	}
	m.turns.limit = cfg.Turns
	if m.turns.limit == 0 {
		m.turns.limit = 1024
	}
	if m.style == StyleAuto {
		m.style = styleOf(source)
	}
	m.thinks = strings.Contains(source, thinkEnd)
	if err := m.probe(); err != nil {
		return nil, err
	}
	stops := cfg.Stop
	if eos := special["eos_token"]; eos != "" {
		stops = append(slices.Clone(stops), eos)
	}
	for _, text := range stops {
		id, ok := tok.ID(text)
		if !ok {
			return nil, agl.Errorf(agl.CodeInvalid, "stop: %q is not a token of the model", text)
		}
		m.stops[id] = true
	}
	if err := m.readGeneration(f.Generation); err != nil {
		return nil, err
	}
	if len(m.stops) == 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "stop: the model has no eos_token and its template ends replies with no special token; give one")
	}
	return m, nil
}

// readGeneration reads the tokens that end a reply.
func (m *Model) readGeneration(data []byte) error {
	if data == nil {
		return nil
	}
	var g struct {
		EOS jsontext.Value `json:"eos_token_id"`
	}
	if err := json.Unmarshal(data, &g); err != nil {
		return agl.Errorf(agl.CodeInvalid, "generation_config.json: %w", err)
	}
	var ids []int32
	var err error
	switch g.EOS.Kind() {
	case '0':
		ids = make([]int32, 1)
		err = json.Unmarshal(g.EOS, &ids[0])
	case '[':
		err = json.Unmarshal(g.EOS, &ids)
	}
	if err != nil {
		return agl.Errorf(agl.CodeInvalid, "generation_config.json: eos_token_id: %w", err)
	}
	for _, id := range ids {
		m.stops[id] = true
	}
	return nil
}

// readConfig reads the template and the special tokens.
func readConfig(f Files) (source string, special map[string]string, err error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(f.Config, &members); err != nil {
		return "", nil, agl.Errorf(agl.CodeInvalid, "tokenizer_config.json: %w", err)
	}
	special = map[string]string{}
	for _, name := range specialNames() {
		var text string
		var token struct {
			Content string `json:"content"`
		}
		data := members[name]
		switch data.Kind() {
		case '"':
			err = json.Unmarshal(data, &text)
		case '{':
			err = json.Unmarshal(data, &token)
			text = token.Content
		}
		if err != nil {
			return "", nil, agl.Errorf(agl.CodeInvalid, "tokenizer_config.json: %s: %w", name, err)
		}
		if text != "" {
			special[name] = text
		}
	}
	if f.Template != nil {
		return string(f.Template), special, nil
	}
	data := members["chat_template"]
	switch data.Kind() {
	case '"':
		err = json.Unmarshal(data, &source)
	case '[':
		var named []struct {
			Name     string `json:"name"`
			Template string `json:"template"`
		}
		err = json.Unmarshal(data, &named)
		for _, n := range named {
			if n.Name == "default" {
				source = n.Template
			}
		}
	}
	if err != nil || source == "" {
		return "", nil, agl.Errorf(agl.CodeInvalid, "tokenizer_config.json: there is no chat_template")
	}
	return source, special, nil
}

// Tokenizer is the model's tokenizer.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.tok }

// Style is how the model writes tool calls.
func (m *Model) Style() Style { return m.style }

// Stop implements chat.Renderer.
func (m *Model) Stop() []int32 {
	ids := make([]int32, 0, len(m.stops))
	for id := range m.stops {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Parse implements chat.Renderer.
func (m *Model) Parse(ids []int32) chat.Message {
	s := m.Stream()
	message := chat.Message{Role: "assistant"}
	add := func(d chat.Delta) {
		message.Content += d.Content
		message.Reasoning += d.Reasoning
		message.ToolCalls = append(message.ToolCalls, d.ToolCalls...)
	}
	for _, id := range ids {
		add(s.Add(id))
	}
	add(s.Close())
	return message
}

// Prompt implements chat.Renderer. It continues the tokens of the conversation's earlier turns where the
// template keeps their text, and logs where it does not; see [Model.Continue].
func (m *Model) Prompt(p chat.PromptParams) ([]int32, error) {
	c, err := m.Continue(p)
	if c.Break != "" {
		m.logger.Info("pretrained: a prompt does not continue an earlier turn", slog.String("reason", c.Break))
	}
	return c.IDs, err
}

// Continuation is a prompt and how it continues what was sampled before.
type Continuation struct {
	IDs []int32
	// Reused is how many of the ids are those of an earlier turn, its prompt and its reply as it was sampled.
	Reused int
	// Break says why an earlier turn of the conversation could not be reused; empty if it was, or if there is
	// none.
	Break string
}

// Continue renders the prompt for the assistant's next message.
func (m *Model) Continue(p chat.PromptParams) (Continuation, error) {
	if p.Tools != nil && m.style == StyleNone {
		return Continuation{}, agl.Errorf(agl.CodeInvalid, "tools: this model's chat template has no form of tool calls that is known (hermes, llama3, deepseek)")
	}
	messages := make([]any, len(p.Messages))
	for i, message := range p.Messages {
		v, err := m.message(message)
		if err != nil {
			return Continuation{}, agl.Errorf(agl.CodeInvalid, "messages[%d]: %w", i, err)
		}
		messages[i] = v
	}
	text, err := m.template.render(messages, TextParams{Tools: p.Tools, Variables: p.Variables, AddGenerationPrompt: true})
	if err != nil {
		return Continuation{}, err
	}
	return m.turns.extend(m.tok, text), nil
}

// Remember implements chat.Rememberer.
func (m *Model) Remember(prompt, reply []int32) { m.turns.add(m.tok, prompt, reply) }

// message is a message in the form that the template wants.
func (m *Model) message(from chat.Message) (*jinja.Dict, error) {
	raw := new(jinja.Dict)
	if from.Raw != nil {
		v, err := parseValue(from.Raw)
		if err != nil {
			return nil, err
		}
		dict, ok := v.(*jinja.Dict)
		if !ok {
			return nil, agl.Errorf(agl.CodeInvalid, "a message is an object")
		}
		raw = dict
	} else {
		raw.Set("role", from.Role)
		raw.Set("content", from.Content)
		if from.Reasoning != "" {
			raw.Set("reasoning_content", from.Reasoning)
		}
		if from.ToolCallID != "" {
			raw.Set("tool_call_id", from.ToolCallID)
		}
		if calls := callValues(from.ToolCalls); len(calls) > 0 {
			raw.Set("tool_calls", calls)
		}
	}
	return m.form.apply(raw)
}

func callValues(calls []chat.ToolCall) []any {
	var out []any
	for _, c := range calls {
		function, call := new(jinja.Dict), new(jinja.Dict)
		function.Set("name", c.Function.Name)
		function.Set("arguments", c.Function.Arguments)
		call.Set("id", c.ID)
		call.Set("type", c.Type)
		call.Set("function", function)
		out = append(out, call)
	}
	return out
}

// apply makes a message of the OpenAI form one that the template can render.
func (f form) apply(raw *jinja.Dict) (*jinja.Dict, error) {
	content, _ := raw.Get("content")
	calls, _ := raw.Get("tool_calls")
	list, _ := calls.([]any)
	out := withReasoning(withoutNull(raw))
	if parts, ok := content.([]any); ok && f.partsAsText {
		out.Set("content", joinParts(parts))
	}
	if empty := content == nil || content == ""; empty {
		if f.nullContent && len(list) > 0 {
			out.Set("content", nil)
		} else {
			out.Set("content", "")
		}
	}
	if !f.argumentsAsObject || len(list) == 0 {
		return out, nil
	}
	changed := make([]any, len(list))
	for i, v := range list {
		call, err := withArguments(v)
		if err != nil {
			return nil, agl.Errorf(agl.CodeInvalid, "tool_calls[%d]: %w", i, err)
		}
		changed[i] = call
	}
	out.Set("tool_calls", changed)
	return out, nil
}

// joinParts is the text of content parts.
func joinParts(parts []any) string {
	var b strings.Builder
	for _, p := range parts {
		if dict, ok := p.(*jinja.Dict); ok {
			if text, ok := dict.Get("text"); ok {
				if s, ok := text.(string); ok {
					b.WriteString(s)
				}
			}
		}
	}
	return b.String()
}

// withArguments is a call whose arguments are an object instead of its text.
func withArguments(call any) (any, error) {
	dict, ok := call.(*jinja.Dict)
	if !ok {
		return nil, agl.Errorf(agl.CodeInvalid, "a call is an object")
	}
	v, _ := dict.Get("function")
	function, ok := v.(*jinja.Dict)
	if !ok {
		return call, nil
	}
	v, _ = function.Get("arguments")
	text, ok := v.(string)
	if !ok {
		return call, nil
	}
	arguments, err := parseValue(jsontext.Value(text))
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "function.arguments: %w", err)
	}
	newFunction, newCall := new(jinja.Dict), new(jinja.Dict)
	for name, v := range function.All() {
		newFunction.Set(name, v)
	}
	newFunction.Set("arguments", arguments)
	for name, v := range dict.All() {
		newCall.Set(name, v)
	}
	newCall.Set("function", newFunction)
	return newCall, nil
}
