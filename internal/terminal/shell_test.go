package terminal_test

import (
	"os/exec"
	"testing"

	"github.com/agl-go/agl/internal/terminal"
)

// TestShellWord: a shell reads the word as the text that it was.
func TestShellWord(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"runs/agl-2": "runs/agl-2",
		"my own":     "'my own'",
		"it's":       `'it'\''s'`,
		"":           "''",
		"~/a":        "'~/a'",
		"$(b)&c;*":   "'$(b)&c;*'",
	} {
		word := terminal.ShellWord(text)
		if word != want {
			t.Errorf("%q: got %s, want %s", text, word, want)
		}
		read, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+word).Output()
		if err != nil || string(read) != text {
			t.Errorf("a shell reads %s as %q, %v", word, read, err)
		}
	}
}
