//go:build tokenizers

package tokenizers_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/chat/pretrained"
	"github.com/agl-go/agl/tinker/chat/tokenizer"
)

func files(t *testing.T, model string) pretrained.Files {
	t.Helper()
	var f pretrained.Files
	var err error
	if f.Tokenizer, err = os.ReadFile(filepath.Join(modelDir(t, model), "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	if f.Config, err = os.ReadFile(filepath.Join(modelDir(t, model), "tokenizer_config.json")); err != nil {
		t.Fatal(err)
	}
	if f.Template, err = os.ReadFile(filepath.Join(modelDir(t, model), "chat_template.jinja")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return f
}

type conversation struct {
	Special   map[string]string `json:"special"`
	Messages  jsontext.Value    `json:"messages"`
	Tools     jsontext.Value    `json:"tools"`
	Ask       bool              `json:"ask"`
	Variables jsontext.Value    `json:"variables"`
	Text      *string           `json:"text"`
	IDs       []int32           `json:"ids"`
	Error     string            `json:"error"`
}

// Every conversation must render to the reference's text and ids, or fail if the reference fails.
func TestSamePrompts(t *testing.T) {
	t.Parallel()
	for _, model := range models() {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			f := files(t, model)
			var config struct {
				ChatTemplate string `json:"chat_template"`
			}
			if err := json.Unmarshal(f.Config, &config); err != nil {
				t.Fatal(err)
			}
			if f.Template != nil {
				config.ChatTemplate = string(f.Template)
			}
			tok := load(t, model)
			var template *pretrained.Template
			n, raised, bad := 0, 0, 0
			reference(t, func(line []byte) {
				var c conversation
				if err := json.Unmarshal(line, &c); err != nil {
					t.Fatal(err)
				}
				if template == nil {
					var err error
					if template, err = pretrained.NewTemplate(config.ChatTemplate, c.Special); err != nil {
						t.Fatal(err)
					}
					return
				}
				n++
				got, err := template.Text(pretrained.TextParams{Messages: c.Messages, Tools: c.Tools, AddGenerationPrompt: c.Ask, Variables: c.Variables})
				switch {
				case c.Text == nil:
					raised++
					if err == nil {
						t.Errorf("%s gives %q; the reference raises %s", c.Messages, got, c.Error)
						bad++
					}
				case err != nil:
					t.Errorf("%s fails with %v; the reference gives %q", c.Messages, err, *c.Text)
					bad++
				case got != *c.Text:
					t.Errorf("%s:\n%s", c.Messages, cmp.Diff(*c.Text, got))
					bad++
				case !slices.Equal(tok.Append(nil, got, tokenizer.Options{Added: true}), c.IDs):
					t.Errorf("%s: other ids", c.Messages)
					bad++
				}
			}, "conversations.py", modelDir(t, model))
			t.Logf("%d of %d renderings are identical, of which %d raise in both", n-bad, n, raised)
			if n != 40*12 {
				t.Errorf("%d renderings", n)
			}
		})
	}
}

// Each model must load as a chat format, and continue its own turns token by token.
func TestContinuesTurns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model, stop string
		style       pretrained.Style
	}{
		{"qwen3", "<|im_end|>", pretrained.StyleHermes},
		{"llama3", "<|eot_id|>", pretrained.StyleNone},
		{"llama3_1", "<|eot_id|>", pretrained.StyleLlama},
		{"deepseek_v3", "<｜end▁of▁sentence｜>", pretrained.StyleDeepSeek},
		{"gemma3", "<end_of_turn>", pretrained.StyleNone},
	} {
		t.Run(c.model, func(t *testing.T) {
			t.Parallel()
			m, err := pretrained.Load(files(t, c.model), pretrained.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if m.Style() != c.style {
				t.Errorf("style %s, want %s", m.Style(), c.style)
			}
			tok := m.Tokenizer()
			stop, ok := tok.ID(c.stop)
			if !ok || !slices.Contains(m.Stop(), stop) {
				t.Errorf("stops %v, want %s %d in it", m.Stop(), c.stop, stop)
			}
			messages := []chat.Message{{Role: "user", Content: "Say hello"}}
			first, err := m.Prompt(chat.PromptParams{Messages: messages})
			if err != nil {
				t.Fatal(err)
			}
			// Sampled ids that encoding would not give: one byte, one token.
			var reply []int32
			for _, b := range []byte("hello there") {
				ids, err := tok.Encode(string(rune(b)))
				if err != nil {
					t.Fatal(err)
				}
				reply = append(reply, ids...)
			}
			reply = append(reply, stop)
			m.Remember(first, reply)
			messages = append(messages, chat.ReadAll(m.Stream(), reply), chat.Message{Role: "user", Content: "Again"})
			second, err := m.Continue(chat.PromptParams{Messages: messages})
			if err != nil {
				t.Fatal(err)
			}
			want := append(slices.Clone(first), reply...)
			if second.Reused != len(want) || second.Break != "" || !slices.Equal(second.IDs[:len(want)], want) {
				t.Errorf("reused %d of %d ids; %s", second.Reused, len(want), second.Break)
			}
			if text := tok.Decode(second.IDs[len(want):]); text == "" {
				t.Error("nothing follows")
			}
		})
	}
}

// Tool calls that a model's own template writes must be read unchanged, and continued token by token.
func TestReadsCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model string
		style pretrained.Style
		calls int
	}{
		{"qwen3", pretrained.StyleHermes, 1},
		{"qwen3", pretrained.StyleHermes, 2},
		{"llama3_1", pretrained.StyleLlama, 1},       // the template refuses more
		{"deepseek_v3", pretrained.StyleDeepSeek, 2}, // the template ends the section after the second
	} {
		t.Run(c.model, func(t *testing.T) {
			t.Parallel()
			m, err := pretrained.Load(files(t, c.model), pretrained.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if m.Style() != c.style {
				t.Fatalf("style %s, want %s", m.Style(), c.style)
			}
			tools := jsontext.Value(`[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`)
			want := []chat.ToolCall{
				{Type: "function", Function: chat.FunctionCall{Name: "weather", Arguments: `{"city": "Köln \"am\" Rhein", "days": [1, 2.5, null]}`}},
				{Type: "function", Function: chat.FunctionCall{Name: "noop", Arguments: `{}`}},
			}[:c.calls]
			asked := []chat.Message{{Role: "user", Content: "Rain?"}}
			ask, err := m.Prompt(chat.PromptParams{Messages: asked, Tools: tools})
			if err != nil {
				t.Fatal(err)
			}
			answered := append(slices.Clone(asked), chat.Message{Role: "assistant", ToolCalls: want}, chat.Message{Role: "tool", Content: "no"})
			whole, err := m.Prompt(chat.PromptParams{Messages: answered, Tools: tools})
			if err != nil {
				t.Fatal(err)
			}
			if len(whole) <= len(ask) || !slices.Equal(whole[:len(ask)], ask) {
				t.Fatalf("the prompt of the reply is not a part of\n%s", m.Tokenizer().Decode(whole))
			}
			reply := whole[len(ask):]
			reply = reply[:slices.IndexFunc(reply, func(id int32) bool { return slices.Contains(m.Stop(), id) })+1]
			got := chat.ReadAll(m.Stream(), reply)
			if len(got.ToolCalls) != c.calls || got.Content != "" {
				t.Fatalf("%q is read as %+v", m.Tokenizer().Decode(reply), got)
			}
			for i, call := range got.ToolCalls {
				var is, was any
				if err := errors.Join(json.Unmarshal([]byte(call.Function.Arguments), &is), json.Unmarshal([]byte(want[i].Function.Arguments), &was)); err != nil {
					t.Fatal(err)
				}
				if call.Function.Name != want[i].Function.Name || !cmp.Equal(is, was) {
					t.Errorf("call %d is %+v, was %+v", i, call, want[i])
				}
			}
			m.Remember(ask, reply)
			answered[1] = got
			next, err := m.Continue(chat.PromptParams{Messages: answered, Tools: tools})
			if err != nil {
				t.Fatal(err)
			}
			if next.Reused != len(ask)+len(reply) || next.Break != "" {
				t.Errorf("reused %d of %d ids; %s", next.Reused, len(ask)+len(reply), next.Break)
			}
		})
	}
}
