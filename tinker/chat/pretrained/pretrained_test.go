package pretrained

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/chat/tokenizer"
)

// hermes is a template like Qwen's: it omits the reasoning of earlier turns, and takes arguments as text or as an object.
const hermes = `{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ m.role }}
{% if loop.last and m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content + '' }}
{%- for call in m.tool_calls %}
{%- if m.content or not loop.first %}{{ '\n' }}{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}`

// deepSeek is a template like DeepSeek V3's: it renders a call where the content is none.
const deepSeek = `{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}<｜tool▁calls▁begin｜>
{%- for c in m.tool_calls %}<｜tool▁call▁begin｜>{{ c.type }}<｜tool▁sep｜>{{ c.function.name }}
` + "```json\n{{ c.function.arguments + '' }}\n```" + `<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜><|im_end|>
{%- elif m.role == 'assistant' %}{{ m.content }}<|im_end|>{% else %}<|im_start|>{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<think>
{% endif %}`

// llama is a template like Llama 3.1's: it takes arguments as an object, and content as text or as a list of parts.
const llama = `{% for m in messages %}<|start_header_id|>{{ m.role }}<|im_start|>{% if m.tool_calls %}{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}
{%- elif m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}<|im_end|>{% endfor %}`

func tokenizerFile(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("../tokenizer/testdata/onedigit.json")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func config(t testing.TB, template string) []byte {
	t.Helper()
	data, err := json.Marshal(map[string]any{"chat_template": template, "bos_token": nil, "eos_token": map[string]any{"content": "<|im_end|>"}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func model(t testing.TB, template string, cfg Config) *Model {
	t.Helper()
	m, err := Load(Files{Tokenizer: tokenizerFile(t), Config: config(t, template)}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sampled returns ids of a text as a model may sample them: one for each byte, and added tokens.
func sampled(t testing.TB, m *Model, text string) []int32 {
	t.Helper()
	var ids []int32
	for text != "" {
		if strings.HasPrefix(text, "<|im_end|>") {
			id, _ := m.tok.ID("<|im_end|>")
			ids = append(ids, id)
			text = text[len("<|im_end|>"):]
			continue
		}
		id, ok := m.tok.ID(text[:1])
		if !ok {
			t.Fatalf("no token for %q", text[:1])
		}
		ids = append(ids, id)
		text = text[1:]
	}
	return ids
}

func call(name, arguments string) chat.ToolCall {
	return chat.ToolCall{Type: "function", Function: chat.FunctionCall{Name: name, Arguments: arguments}}
}

func TestParse(t *testing.T) {
	t.Parallel()
	models := map[Style]*Model{
		StyleHermes:   model(t, hermes, Config{}),
		StyleDeepSeek: model(t, deepSeek, Config{}),
		StyleLlama:    model(t, llama, Config{}),
		StyleNone:     model(t, hermes, Config{Style: StyleNone}),
	}
	const ds = dsCallsBegin + dsCallBegin + "function" + dsSep + "f\n```json\n{\"a\": 1}\n```" + dsCallEnd + "\n" + dsCallBegin + "function" + dsSep + "g\n```json\n{}\n```" + dsCallEnd + dsCallsEnd
	for _, c := range []struct {
		name, text string
		style      Style
		want       chat.Message
	}{
		{"content", "Hello.\n<|im_end|>", StyleHermes, chat.Message{Content: "Hello.\n"}},
		{"nothing", "<|im_end|>", StyleHermes, chat.Message{}},
		{"cut off", "Hello\n\n", StyleHermes, chat.Message{Content: "Hello\n\n"}},
		{"characters of several bytes", "né 😀<|im_end|>", StyleHermes, chat.Message{Content: "né 😀"}},
		{"a broken character", "a\xf0\x9f<|im_end|>", StyleHermes, chat.Message{Content: "a\ufffd"}},
		{"reasoning", "<think>\nhm\nso\n</think>\n\nYes.<|im_end|>", StyleHermes, chat.Message{Reasoning: "hm\nso", Content: "Yes."}},
		{"reasoning alone", "<think>\nhm", StyleHermes, chat.Message{Reasoning: "hm"}},
		{"reasoning that is empty", "<think>\n\n</think>\n\nYes.", StyleHermes, chat.Message{Content: "Yes."}},
		{"a thought later is content", "a <think>b</think>", StyleHermes, chat.Message{Content: "a <think>b</think>"}},
		{"a call", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":  1}}\n</tool_call><|im_end|>", StyleHermes, chat.Message{ToolCalls: []chat.ToolCall{call("f", `{"a":  1}`)}}},
		{
			"text and calls", "Let me.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"arguments\": \"{}\", \"name\": \"g\"}\n</tool_call>", StyleHermes,
			chat.Message{Content: "Let me.", ToolCalls: []chat.ToolCall{call("f", "{}"), call("g", "{}")}},
		},
		{"reasoning and a call", "<think>\nx\n</think>\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", StyleHermes, chat.Message{Reasoning: "x", ToolCalls: []chat.ToolCall{call("f", "{}")}}},
		{"no call", "a\n<tool_call>\nnot JSON\n</tool_call> b", StyleHermes, chat.Message{Content: "a\n<tool_call>\nnot JSON\n</tool_call> b"}},
		{"a call without arguments", "<tool_call>{\"name\":\"f\"}</tool_call>", StyleHermes, chat.Message{Content: "<tool_call>{\"name\":\"f\"}</tool_call>"}},
		{"a call that does not end", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a", StyleHermes, chat.Message{Content: "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a"}},
		{"a call whose tag is missing", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n", StyleHermes, chat.Message{ToolCalls: []chat.ToolCall{call("f", "{}")}}},
		{"half a tag", "a <tool_ca", StyleHermes, chat.Message{Content: "a <tool_ca"}},
		{"no style", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", StyleNone, chat.Message{Content: "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"}},
		{"deepseek's calls", "hm\n</think>\n\nLook:" + ds + "<|im_end|>", StyleDeepSeek, chat.Message{Reasoning: "hm", Content: "Look:", ToolCalls: []chat.ToolCall{call("f", `{"a": 1}`), call("g", "{}")}}},
		{"deepseek's broken calls", "</think>" + dsCallsBegin + "f" + dsCallsEnd, StyleDeepSeek, chat.Message{Content: dsCallsBegin + "f" + dsCallsEnd}},
		{"llama's call", `{"name": "f", "parameters": {"a": "b"}}<|im_end|>`, StyleLlama, chat.Message{ToolCalls: []chat.ToolCall{call("f", `{"a": "b"}`)}}},
		{"llama's calls", llamaTag + `{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}`, StyleLlama, chat.Message{ToolCalls: []chat.ToolCall{call("f", "{}"), call("g", "{}")}}},
		{"llama's call with an object in text", `{"name": "f", "parameters": " {\"a\": 1}"}<|im_end|>`, StyleLlama, chat.Message{ToolCalls: []chat.ToolCall{call("f", ` {"a": 1}`)}}},
		{"a call with text for arguments", `{"name": "f", "parameters": "{ab"}`, StyleLlama, chat.Message{Content: `{"name": "f", "parameters": "{ab"}`}},
		{"a call with a number in text for arguments", `<tool_call>{"name": "f", "arguments": "7"}</tool_call>`, StyleHermes, chat.Message{Content: `<tool_call>{"name": "f", "arguments": "7"}</tool_call>`}},
		{"JSON that is no call", `{"a": 1}`, StyleLlama, chat.Message{Content: `{"a": 1}`}},
		{"half of llama's tag", "<|pyt", StyleLlama, chat.Message{Content: "<|pyt"}},
		{"llama's content", "<b>bold</b>", StyleLlama, chat.Message{Content: "<b>bold</b>"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := models[c.style]
			ids := sampled(t, m, c.text)
			c.want.Role = "assistant"
			got := chat.ReadAll(m.Stream(), ids)
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(chat.ToolCall{}, "ID")); diff != "" {
				t.Error(diff)
			}
			seen := map[string]bool{}
			for _, call := range got.ToolCalls {
				if call.ID == "" || seen[call.ID] {
					t.Errorf("the id %q", call.ID)
				}
				seen[call.ID] = true
			}
			noLeak(t, m, ids, got)
		})
	}
}

// noLeak checks that a stream never releases a part of a tag, which it could not take back.
func noLeak(t *testing.T, m *Model, ids []int32, want chat.Message) {
	t.Helper()
	s := m.Stream()
	var got chat.Message
	add := func(d chat.Delta) {
		got.Content += d.Content
		got.Reasoning += d.Reasoning
		got.ToolCalls = append(got.ToolCalls, d.ToolCalls...)
		if !strings.HasPrefix(want.Content, got.Content) || !strings.HasPrefix(want.Reasoning, got.Reasoning) {
			t.Fatalf("gave away %q and %q of %q and %q", got.Content, got.Reasoning, want.Content, want.Reasoning)
		}
	}
	for _, id := range ids {
		add(s.Add(id))
	}
	add(s.Close())
	if got.Content != want.Content || got.Reasoning != want.Reasoning || len(got.ToolCalls) != len(want.ToolCalls) {
		t.Errorf("streamed %+v, want %+v", got, want)
	}
}

// Content that cannot become a tag is released with its own token.
func TestStreamIsPrompt(t *testing.T) {
	t.Parallel()
	m := model(t, hermes, Config{})
	s := m.Stream()
	for _, id := range sampled(t, m, "plain words") {
		if d := s.Add(id); d.Content != m.tok.Decode([]int32{id}) {
			t.Fatalf("%q came as %q", m.tok.Decode([]int32{id}), d.Content)
		}
	}
}

// One token may hold text and what looks like the beginning of reasoning.
func TestThoughtInOneTokenWithText(t *testing.T) {
	t.Parallel()
	m := model(t, hermes, Config{})
	for text, want := range map[string]chat.Delta{
		"a <think>b</think>":          {Content: "a <think>b</think>"},
		"\n<think>\nb\n</think>\n\na": {Content: "a", Reasoning: "b"},
	} {
		s := &stream{style: m.style, thinks: m.thinks, stops: m.stops, decoder: m.tok.NewDecoder(), held: text}
		if d := s.decide(true); d.Content != want.Content || d.Reasoning != want.Reasoning {
			t.Errorf("%q came as %+v, want %+v", text, d, want)
		}
	}
}

// The next prompt begins with the ids of the turn before, as they were sampled.
func TestContinue(t *testing.T) {
	t.Parallel()
	tools := jsontext.Value(`[{"type":"function","function":{"name":"f"}}]`)
	for _, c := range []struct {
		name, template, reply string
		broken                string
	}{
		{"content", hermes, "Hello.<|im_end|>", ""},
		{"cut off", hermes, "Hel", ""},
		{"a call", hermes, "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":  1}}\n</tool_call><|im_end|>", ""},
		{"two calls", hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call><|im_end|>", ""},
		{"reasoning", hermes, "<think>\nhm\n</think>\n\nHello.<|im_end|>", `it was "<think>\nhm\n</think>\n\nHello.<|im_end|>" and became "Hello.<|im_end|>`},
		{"other spaces in a call", hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><|im_end|>", "from byte 11 on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := model(t, c.template, Config{})
			messages := []chat.Message{{Role: "user", Content: "Hi there"}}
			p := chat.PromptParams{Messages: messages, Tools: tools}
			first, err := m.Continue(p)
			if err != nil || first.Reused != 0 || first.Break != "" {
				t.Fatalf("%+v, %v", first, err)
			}
			reply := sampled(t, m, c.reply)
			m.Remember(first.IDs, reply)
			p.Messages = append(slices.Clone(messages), chat.ReadAll(m.Stream(), reply), chat.Message{Role: "user", Content: "And?"})
			next, err := m.Continue(p)
			if err != nil {
				t.Fatal(err)
			}
			whole := slices.Concat(first.IDs, reply)
			if c.broken != "" {
				if next.Reused != 0 || !strings.Contains(next.Break, c.broken) {
					t.Errorf("reused %d, %q; want the break %q", next.Reused, next.Break, c.broken)
				}
				return
			}
			if next.Break != "" || next.Reused != len(whole) || !slices.Equal(next.IDs[:len(whole)], whole) {
				t.Errorf("reused %d of %d: %s", next.Reused, len(whole), next.Break)
			}
			fresh, err := model(t, c.template, Config{}).Prompt(p)
			if err != nil || m.tok.Decode(next.IDs) != m.tok.Decode(fresh) {
				t.Errorf("continued %q, rendered %q, %v", m.tok.Decode(next.IDs), m.tok.Decode(fresh), err)
			}
		})
	}
}

// A conversation whose text the tokenizer normalizes is continued, too.
func TestContinueAfterNormalizing(t *testing.T) {
	t.Parallel()
	m := model(t, hermes, Config{})
	messages := []chat.Message{{Role: "user", Content: "e\u0301te\u0301"}}
	first, err := m.Prompt(chat.PromptParams{Messages: messages})
	if err != nil {
		t.Fatal(err)
	}
	m.Remember(first, sampled(t, m, "ok<|im_end|>"))
	messages = append(messages, chat.Message{Role: "assistant", Content: "ok"}, chat.Message{Role: "user", Content: "x"})
	if c, err := m.Continue(chat.PromptParams{Messages: messages}); err != nil || c.Reused <= len(first) {
		t.Errorf("reused %d of more than %d, %v", c.Reused, len(first), err)
	}
}

// A model is opened from the files of its folder.
func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("tokenizer.json", tokenizerFile(t))
	if _, err := Open(dir, Config{}); agl.ErrorCode(err) != agl.CodeNotFound || !strings.Contains(err.Error(), "tokenizer_config.json") {
		t.Errorf("without tokenizer_config.json: %v", err)
	}
	write("tokenizer_config.json", []byte(`{}`))
	write("chat_template.jinja", []byte(llama))
	for eos, want := range map[string][]int32{`7`: {7}, `[7,8]`: {7, 8}, `null`: nil} {
		write("generation_config.json", []byte(`{"eos_token_id":`+eos+`}`))
		m, err := Open(dir, Config{})
		if err != nil {
			t.Fatal(err)
		}
		end, _ := m.Tokenizer().ID("<|im_end|>")
		if want = append(want, end); !slices.Equal(m.Stop(), want) {
			t.Errorf("%s: stops %v, want %v", eos, m.Stop(), want)
		}
	}
	write("generation_config.json", []byte(`{"eos_token_id":["x"]}`))
	if _, err := Open(dir, Config{}); agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), "eos_token_id") {
		t.Errorf("%v", err)
	}
}

func TestTurnsAreBounded(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]Config{"turns": {Turns: 2}, "bytes": {TurnBytes: 600}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			boundedTurns(t, model(t, hermes, limits))
		})
	}
}

func boundedTurns(t *testing.T, m *Model) {
	t.Helper()
	for _, text := range []string{"one", "two", "three"} {
		prompt, err := m.Prompt(chat.PromptParams{Messages: []chat.Message{{Role: "user", Content: text}}})
		if err != nil {
			t.Fatal(err)
		}
		m.Remember(prompt, sampled(t, m, "ok<|im_end|>"))
	}
	for _, c := range []struct {
		text string
		kept bool
	}{{"three", true}, {"one", false}} {
		got, err := m.Continue(chat.PromptParams{Messages: []chat.Message{{Role: "user", Content: c.text}, {Role: "assistant", Content: "ok"}, {Role: "user", Content: "x"}}})
		if err != nil || (got.Reused > 0) != c.kept {
			t.Errorf("%s: reused %d, %v", c.text, got.Reused, err)
		}
	}
}

// Load finds out which form a template needs.
func TestForm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, template string
		want           form
		opens          bool
	}{
		{"hermes", hermes, form{partsAsText: true}, false},
		{"deepseek", deepSeek, form{nullContent: true, partsAsText: true}, true},
		{"llama", llama, form{argumentsAsObject: true}, false},
	} {
		m := model(t, c.template, Config{})
		if m.form != c.want || m.opensReasoning != c.opens {
			t.Errorf("%s: %+v, %v", c.name, m.form, m.opensReasoning)
		}
	}
	m := model(t, hermes, Config{})
	raw := jsontext.Value(`{"role":"user","content":[{"type":"text","text":"a "},{"type":"text","text":"b"}]}`)
	ids, err := m.Prompt(chat.PromptParams{Messages: []chat.Message{{Raw: raw}}, Variables: jsontext.Value(`{"enable_thinking":false}`)})
	const want = "<|im_start|>user\na b<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
	if got := m.tok.Decode(ids); err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
}

// Messages are prepared as transformers does.
func TestText(t *testing.T) {
	t.Parallel()
	tpl, err := NewTemplate("{{ bos_token }}{{ messages | tojson }}{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ extra }}", map[string]string{"bos_token": "<s>"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p    TextParams
		want string
	}{
		{TextParams{Messages: jsontext.Value(`[{"role":"user","content":null,"x":[null,1.0,1]}]`)}, `<s>[{"role": "user", "x": [null, 1.0, 1]}]NoneNoneFalse`},
		{
			TextParams{Messages: jsontext.Value(`[{"role":"a","reasoning":"r"}]`), Tools: jsontext.Value(`[]`), AddGenerationPrompt: true, Variables: jsontext.Value(`{"extra":2,"bos_token":"!"}`)},
			`![{"thinking": "r", "role": "a", "reasoning": "r", "reasoning_content": "r"}][]NoneTrue2`,
		},
	} {
		if got, err := tpl.Text(c.p); err != nil || got != c.want {
			t.Errorf("got %s, %v\nwant %s", got, err, c.want)
		}
	}
	for _, messages := range []string{``, `{}`, `[]`, `["x"]`, `[{}] x`, `[{"a":1,"a":2}]`} {
		if text, err := tpl.Text(TextParams{Messages: jsontext.Value(messages)}); agl.ErrorCode(err) != agl.CodeInvalid {
			t.Errorf("%s gives %q, %v", messages, text, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, template string
		cfg            Config
		want           string
	}{
		{"style", hermes, Config{Style: "yaml"}, `style is "yaml"; allowed are`},
		{"turns", hermes, Config{Turns: -1}, "Turns: got -1"},
		{"bytes of turns", hermes, Config{TurnBytes: -1}, "TurnBytes: got -1"},
		{"stop", hermes, Config{Stop: []string{"<nope>"}}, `"<nope>" is not a token`},
		{"syntax", "{% if %}", Config{}, "chat template: jinja: line 1"},
		{"raises", "{{ raise_exception('never') }}", Config{}, "raised: never"},
		{"no messages", "hello", Config{}, "omits messages"},
		{"no calls", "{% for m in messages %}{{ m.content }}{% endfor %}", Config{Style: StyleHermes}, "renders a tool call in no known form"},
		{"without a template", "", Config{}, "there is no chat_template"},
	} {
		_, err := Load(Files{Tokenizer: tokenizerFile(t), Config: config(t, c.template)}, c.cfg)
		if agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	m := model(t, hermes, Config{Style: StyleNone})
	_, err := m.Prompt(chat.PromptParams{Messages: []chat.Message{{Role: "user"}}, Tools: jsontext.Value(`[{}]`)})
	if agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), "tool calls in no known style") {
		t.Errorf("tools: %v", err)
	}
	_, err = model(t, llama, Config{}).Prompt(chat.PromptParams{Messages: []chat.Message{{Role: "assistant", ToolCalls: []chat.ToolCall{call("f", "{")}}}})
	if agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), "messages[0]: tool_calls[0]: function.arguments") {
		t.Errorf("arguments: %v", err)
	}
}

// Whatever a model writes, a stream releases no part of a tag, and loses nothing unless there is a call.
func FuzzStream(f *testing.F) {
	f.Add("a\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call><think>", uint64(1))
	f.Add("<think>x</think>\n\n"+llamaTag+"{", uint64(2))
	models := []*Model{model(f, hermes, Config{}), model(f, deepSeek, Config{}), model(f, llama, Config{})}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		for _, m := range models {
			var ids []int32
			rng := rand.New(rand.NewPCG(seed, 1))
			for rest := text; rest != ""; {
				n := 1 + rng.IntN(min(len(rest), 12))
				ids = m.tok.Append(ids, rest[:n], tokenizer.Options{Added: true})
				rest = rest[n:]
			}
			noLeak(t, m, ids, chat.ReadAll(m.Stream(), ids))
		}
	})
}
