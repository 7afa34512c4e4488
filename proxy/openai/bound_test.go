package openai

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// The bound of a prompt is that of its text, however that is escaped, and never less.
func TestPromptBound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`"plain"`: 7, `"a\nb\"\\\/"`: 8, `"\u0041"`: 3, `"\u00e9"`: 4, `"\u4e2d"`: 5, `"\ud83d\ude00"`: 6,
		`"\ud83d"`: 5, `"\ud83d\u0041"`: 6, `"\ude00\ud83d"`: 8, `"\u12"`: 5, `"\`: 2, `"\u`: 2, ``: 0, `\\u0041`: 6,
	} {
		if got := PromptBound([]byte(text)); got != int64(want) {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
}

func FuzzPromptBound(f *testing.F) {
	for _, text := range []string{`{"messages":[{"content":"a\n\u00e9\ud83d\ude00"}]}`, `"\ud83d"`, `"\\u0041"`, `{"a":"\`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := PromptBound(body)
		if got < 0 || got > int64(len(body)) {
			t.Fatalf("%q: got %d", body, got)
		}
		var text string
		if body = append(append([]byte{'"'}, body...), '"'); json.Unmarshal(body, &text) != nil || strings.ContainsRune(text, '\uFFFD') {
			return
		}
		if got, want := PromptBound(body), int64(len(text)+2); got != want { // valid text without replacements: exactly its bytes and the quotes
			t.Errorf("%q: got %d, want %d", body, got, want)
		}
	})
}

// The limit of a reply is the highest of all its names in any spelling, and what refers to text that
// is not in the request is refused.
func TestBoundOutput(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int64{
		`{}`: DefaultOutput, `{"max_tokens":9}`: 9, `{"max_tokens":9,"max_completion_tokens":10}`: 10, `{"max_output_tokens":null,"max_tokens":9}`: 9,
		`{"max_tokens":1,"MAX_TOKENS":900}`: 900, `{"max_tokens":1,"Max\u005fTokens":900}`: 900, `{"max_tokens":1,"n_predict":900}`: 900, `{"max_tokens":1,"max_toKens":900}`: 900,
		`{"max_tokens":9,"n":3}`: 27, `{"max_tokens":9,"N":3}`: 27, `{"max_tokens":9,"best_of":2,"prompt":["a","b"]}`: 36, `{"max_tokens":9,"prompt":[1,2]}`: 9,
		`{"max_tokens":9,"previous_response_id":null,"conversation":null}`: 9,
	} {
		bound, got, err := BoundOutput([]byte(body), "max_tokens")
		if err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", body, got, err, want)
		}
		if again, same, err := BoundOutput(bound, "max_tokens"); err != nil || same != want || string(again) != string(bound) {
			t.Errorf("%s: what is sent is %s, which allows %d, %v", body, bound, same, err)
		}
	}
	// A limit that the backend may not know is no limit.
	for _, tc := range [][3]string{
		{"max_tokens", `{"MAX_TOKENS":9}`, `{"MAX_TOKENS":9,"max_tokens":9}`}, {"max_tokens", `{"max_completion_tokens":9}`, `{"max_completion_tokens":9,"max_tokens":9}`},
		{"max_completion_tokens", `{"n_predict":9}`, `{"n_predict":9,"max_completion_tokens":9}`}, {"max_completion_tokens", `{"max\u005ftokens":9}`, `{"max\u005ftokens":9}`},
		{"max_tokens", `{"max_tokens":9,"max_tokens":null}`, `{"max_tokens":9,"max_tokens":null,"max_tokens":9}`}, {"max_completion_tokens", `{"max_tokens":9,"max_completion_tokens":null}`, `{"max_tokens":9,"max_completion_tokens":null}`},
		{"max_output_tokens", `{"max_tokens":9}`, `{"max_tokens":9,"max_output_tokens":9}`}, {"max_output_tokens", `{"max_output_tokens":null,"max_tokens":9}`, `{"max_output_tokens":null,"max_tokens":9,"max_output_tokens":9}`},
	} {
		if bound, got, err := BoundOutput([]byte(tc[1]), tc[0]); err != nil || got != 9 || string(bound) != tc[2] {
			t.Errorf("%s: %s, which allows %d, %v, want %s", tc[1], bound, got, err, tc[2])
		}
	}
	for body, want := range map[string]string{
		`{"max_tokens":0}`: "max_tokens: got 0, must be a number between 1 and", `{"MAX_TOKENS":"9"}`: `MAX_TOKENS: got "9"`, `{"n":-1}`: "n: got -1", `{"max_tokens":1e3}`: "max_tokens: got 1e3",
		`{"previous_response_id":"resp_1"}`: `previous_response_id: got "resp_1", must be left out`, `{"conversation":{"id":"c"}}`: "conversation: got", `{"prompt":{"id":"pmpt_1"}}`: "prompt: got an object",
		`{"max_tokens":2147483647,"n":2147483647,"prompt":["a","b"]}`: "too many",
	} {
		if _, _, err := BoundOutput([]byte(body), "max_tokens"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
}

// What an engine is asked to count is what makes the prompt.
func TestAppendTokenize(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"model":"m","messages":[{"role":"user","content":"a\n"}],"max_tokens":9,"tools":[],"stream":true,"chat_template_kwargs":{"x":1}}`: `{"model":"m","messages":[{"role":"user","content":"a\n"}],"tools":[],"chat_template_kwargs":{"x":1}}`,
		`{"prompt":"a","model":"m","echo":true}`: `{"prompt":"a","model":"m"}`, `{}`: `{}`,
	} {
		if got := string(AppendTokenize(nil, []byte(body))); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}
