package flags

import (
	"log"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A duration has its unit in each format.
func TestLogDurations(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"text": " timeout=10s", "json": `"timeout":"10s"`} {
		var out strings.Builder
		Log{LogFormat: format}.Logger(&out).Info("draining", "timeout", 10*time.Second)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: got %q, want %s", format, out.String(), want)
		}
	}
}

// What a library logs is a line like others, without the text that a server has sent.
func TestLibraryLog(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	library := log.New(&libraryLog{slog.New(slog.NewJSONHandler(&out, nil))}, "", 0)
	library.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "a secret\nreply", nil)
	library.Print("another line")
	for _, want := range []string{
		`"level":"WARN","msg":"Unsolicited response received on idle HTTP channel (its text is left out)"}` + "\n", `"msg":"another line"}` + "\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want %s", out.String(), want)
		}
	}
	if strings.Contains(out.String(), "secret") || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("got %q, want two lines without the secret", out.String())
	}
}
