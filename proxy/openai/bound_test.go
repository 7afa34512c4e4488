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
