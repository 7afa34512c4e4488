package console

import (
	"strings"
	"testing"
)

// What comes from elsewhere does not reach the terminal as a command.
func TestControlCharacters(t *testing.T) {
	t.Parallel()
	const hostile = "ro-\x1b]0;owned\x07\u009b2J"
	var stdout, stderr strings.Builder
	c := &Console{Out: &stdout, Err: &stderr}
	table := &Table{Headers: []string{"ID"}, Rows: [][]string{{hostile}}, Status: -1}
	for _, err := range []error{c.Printf("%s  queued\n", hostile), c.Summarize("cancelled %s", hostile), c.JSON(document(`{"id":"` + "\u009b2J" + `"}`)), table.Print(c)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{stdout.String(), stderr.String()} {
		if strings.ContainsAny(text, "\x1b\x07\u009b") || !strings.Contains(text, "ro-") {
			t.Errorf("written: %q", text)
		}
	}
	if !strings.Contains(stdout.String(), `{"id":"\u009b2J"}`) {
		t.Errorf("JSON has changed its meaning: %q", stdout.String())
	}
}

type document string

func (d document) AppendJSON(dst []byte) []byte { return append(dst, d...) }
