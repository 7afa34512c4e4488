package console

import (
	"strings"
	"testing"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"plain":                  "plain",
		"two\nlines\tand tab":    "two lines and tab",
		"\x1b[2J":                "\uFFFD[2J",
		"\u202Eback":             "\uFFFDback",
		"日本":                     "日本",
		"👩\u200d🚀":               "👩\u200d🚀",
		"می\u200cخواهم":          "می\u200cخواهم",
		"hidden\u200b":           "hidden\uFFFD",
		"bad \xff":               "bad \uFFFD",
		strings.Repeat("é", 130): strings.Repeat("é", 120) + "…",
	} {
		if got := Printable(given); got != want {
			t.Errorf("Printable(%q) = %q, want %q", given, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{0: "0 B", 999: "999 B", 1500: "1.5 kB", 20e9: "20.0 GB"} {
		if got := Bytes(bytes); got != want {
			t.Errorf("%d is shown as %s, want %s", bytes, got, want)
		}
	}
}
