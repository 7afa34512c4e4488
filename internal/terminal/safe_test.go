package terminal_test

import (
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/internal/terminal"
)

func TestSafe(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, want string }{
		{"plain\ttext\n日本語 👩‍🚀", "plain\ttext\n日本語 👩‍🚀"},
		{"\x1b[2J\x1b]0;title\x07", "�[2J�]0;title�"},
		{"a\rb\x00c\x7f", "a�b�c�"},
		{"\u009b2J", "�2J"},             // CSI in one character
		{"\x9b2J", "�2J"},               // CSI where text is not UTF-8
		{"x\u202etxt.exe", "x�txt.exe"}, // text that runs to the left
	} {
		if got := terminal.Safe(tc.text); got != tc.want {
			t.Errorf("Safe(%q) = %q, want %q", tc.text, got, tc.want)
		}
	}
	document := "{\"a\": \"\u009b2J \u202e\x7f\"}"
	safe := terminal.SafeJSON(document)
	var before, after any
	if err := json.Unmarshal([]byte(document), &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(safe), &after); err != nil || safe != `{"a": "\u009b2J \u202e\u007f"}` {
		t.Errorf("got %s, %v", safe, err)
	}
	if b, a := before.(map[string]any)["a"], after.(map[string]any)["a"]; a != b {
		t.Errorf("%q became %q", b, a)
	}
}
