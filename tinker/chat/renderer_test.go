package chat

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
)

func newRoleMarks(t *testing.T) (*Characters, *RoleMarks) {
	t.Helper()
	tok, err := NewCharacters("")
	if err != nil {
		t.Fatal(err)
	}
	return tok, NewRoleMarks(tok)
}

func TestCharacters(t *testing.T) {
	t.Parallel()
	tok, _ := newRoleMarks(t)
	if tok.Vocab() != 48 {
		t.Errorf("vocabulary of %d, want 48", tok.Vocab())
	}
	ids := mustEncode(t, tok, DefaultAlphabet)
	for i, id := range ids {
		if int(id) != i {
			t.Fatalf("character %d has id %d", i, id)
		}
	}
	if got := tok.Decode(append(ids, tok.Mark(MarkEnd), 48, -1)); got != DefaultAlphabet+"■��" {
		t.Errorf("decoded %q", got)
	}
	for _, alphabet := range []string{"aa", "a▲"} {
		if _, err := NewCharacters(alphabet); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("alphabet %q: error %v, want invalid", alphabet, err)
		}
	}
}

func TestRoleMarksPrompt(t *testing.T) {
	t.Parallel()
	tok, r := newRoleMarks(t)
	ids, err := r.Prompt(PromptParams{Messages: []Message{
		{Role: "user", Content: "12 times 7"}, {Role: "assistant", Content: "call 12*7"}, {Role: "tool", Content: "84"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tok.Decode(ids), "▲12 times 7▼call 12*7■◆84▼"; got != want {
		t.Errorf("prompt %q, want %q", got, want)
	}
}

func TestDemonstration(t *testing.T) {
	t.Parallel()
	tok, r := newRoleMarks(t)
	d, err := r.Demonstration([]Message{
		{Role: "user", Content: "1"}, {Role: "assistant", Content: "call"}, {Role: "tool", Content: "2"}, {Role: "assistant", Content: "ans"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Validate("cross_entropy", tok.Vocab()); err != nil {
		t.Fatal(err)
	}
	var learned strings.Builder
	for i, w := range d.Weights {
		if w != 0 {
			learned.WriteString(tok.Decode(d.Targets[i : i+1]))
		}
	}
	if got, want := learned.String(), "call■ans■"; got != want {
		t.Errorf("learns %q, want %q", got, want)
	}
	if got := tok.Decode(d.Input[:1]) + tok.Decode(d.Targets); got != "▲1▼call■◆2▼ans■" {
		t.Errorf("text %q", got)
	}
	for _, messages := range [][]Message{nil, {{Role: "user", Content: "1"}}, {{Role: "judge", Content: "1"}}} {
		if _, err := r.Demonstration(messages); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%v: error %v, want invalid", messages, err)
		}
	}
}

// The next prompt is the prompt, the ids of the reply, whatever they are, and what is new.
func TestPromptsExtendReplies(t *testing.T) {
	t.Parallel()
	tok, r := newRoleMarks(t)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune(DefaultAlphabet)), 0, 12, -1)
		messages := []Message{{Role: "user", Content: text.Draw(t, "user")}}
		before, err := r.Prompt(PromptParams{Messages: messages})
		if err != nil {
			t.Fatal(err)
		}
		reply := rapid.SliceOfN(rapid.Int32Range(0, int32(tok.Vocab())-2), 0, 10).Draw(t, "reply")
		reply = append(reply, tok.Mark(MarkEnd))
		messages = append(messages, ReadAll(r.Stream(), reply), Message{Role: "tool", Content: text.Draw(t, "tool")})
		after, err := r.Prompt(PromptParams{Messages: messages})
		if err != nil {
			t.Fatal(err)
		}
		if want := slices.Concat(before, reply); !slices.Equal(after[:len(want)], want) {
			t.Fatalf("prompt %v does not extend %v", after, want)
		}
	})
}

// bytesTokenizer has one token per byte, so that a character spans several tokens.
type bytesTokenizer struct{}

func (bytesTokenizer) Encode(text string) ([]int32, error) {
	var ids []int32
	for i := range len(text) {
		ids = append(ids, int32(text[i]))
	}
	return ids, nil
}

func (bytesTokenizer) Decode(ids []int32) string {
	b := make([]byte, len(ids))
	for i, id := range ids {
		b[i] = byte(id)
	}
	return strings.ToValidUTF8(string(b), "�")
}

// rewriting is a format that trims replies and reads "f(…)" as a tool call.
type rewriting struct{}

func (rewriting) Prompt(PromptParams) ([]int32, error) { return []int32{0}, nil }
func (rewriting) Stop() []int32                        { return nil }
func (rewriting) Stream() Stream                       { return new(rewritten) }

type rewritten []int32

func (r *rewritten) Add(id int32) Delta {
	*r = append(*r, id)
	return Delta{}
}

func (r *rewritten) Close() Delta {
	text := strings.TrimSpace(bytesTokenizer{}.Decode(*r))
	if args, ok := strings.CutPrefix(text, "f"); ok {
		return Delta{ToolCalls: []ToolCall{{ID: "call_1", Type: "function", Function: FunctionCall{Name: "f", Arguments: args}}}}
	}
	return Delta{Content: text}
}

// verbatim is a format whose replies are text.
type verbatim struct{ rewriting }

func (verbatim) Stream() Stream { return &textStream{tok: bytesTokenizer{}, end: -1} }

func TestNewChoice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		format     Renderer
		stopped    bool
		stops      []string
		content    string
		finish     string
		tokens     int
		parts      []part
	}{
		{"characters of several tokens", "é1", verbatim{}, true, nil, "é1", "stop", 3, []part{{Delta{Content: "é"}, 0, 2}, {Delta{Content: "1"}, 2, 3}}},
		{"incomplete last character", "1\xc3", verbatim{}, false, nil, "1�", "length", 2, []part{{Delta{Content: "1"}, 0, 1}, {Delta{Content: "�"}, 1, 2}}},
		{"stop string over tokens", "ab é--c", verbatim{}, true, []string{"x", "--"}, "ab é", "stop", 7, []part{
			{Delta{Content: "a"}, 0, 1}, {Delta{Content: "b"}, 1, 2}, {Delta{Content: " "}, 2, 3}, {Delta{Content: "é"}, 3, 5}, {Delta{}, 5, 7},
		}},
		{"earliest stop string", "abcd", verbatim{}, false, []string{"d", "bc"}, "a", "stop", 3, []part{{Delta{Content: "a"}, 0, 1}, {Delta{}, 1, 3}}},
		{"stop string in a rewritten reply", " abcd", rewriting{}, false, []string{"d", "bc"}, "a", "stop", 4, []part{{Delta{Content: "a"}, 0, 4}}},
		{"rewritten by the format", " ab", rewriting{}, true, nil, "ab", "stop", 3, []part{{Delta{Content: "ab"}, 0, 3}}},
		{"tool call", "f{}", rewriting{}, true, nil, "", "tool_calls", 3, []part{
			{Delta{ToolCalls: []ToolCall{{ID: "call_1", Type: "function", Function: FunctionCall{Name: "f", Arguments: "{}"}}}}, 0, 3},
		}},
		{"empty", "", verbatim{}, false, nil, "", "length", 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ids, err := bytesTokenizer{}.Encode(c.text)
			if err != nil {
				t.Fatal(err)
			}
			r := newChoice(bytesTokenizer{}, c.format.Stream(), ids, make([]float32, len(ids)), c.stopped, c.stops)
			if r.message.Content != c.content || r.finish != c.finish || len(r.tokens) != c.tokens || len(r.logprobs) != c.tokens {
				t.Errorf("content %q, finish %q, %d tokens; want %q, %q, %d", r.message.Content, r.finish, len(r.tokens), c.content, c.finish, c.tokens)
			}
			if diff := cmp.Diff(c.parts, r.parts(c.format.Stream()), cmp.AllowUnexported(part{})); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestToolCallForms(t *testing.T) {
	t.Parallel()
	srv, err := NewServer(Config{
		Tokenizer: bytesTokenizer{}, Renderer: rewriting{}, NewID: func() string { return "chatcmpl-1" },
		Now: newTestServer(t, &script{}).cfg.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.SetModel("policy", Model{Client: fixed("f{}")})
	for name, fields := range map[string]string{"tool-call.json": ``, "tool-call.sse": `,"stream":true`} {
		w := post(t, srv, "/v1/chat/completions", `{`+question+`,"tools":[{}]`+fields+`}`)
		golden(t, name, w.Body.Bytes())
	}
}
