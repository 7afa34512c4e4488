package display

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := Once(slog.New(slog.NewTextHandler(&out, nil)))
	for _, text := range []string{"a\nValueError: boom", "b\nValueError: boom", "KeyError: x"} {
		log.With("n", 1).Warn("attempt failed", "error", errors.New(text))
	}
	log.Warn("other", "error", "ValueError: boom")
	for range 2 {
		log.Error("failed", "error", "ValueError: boom")
		log.Warn("no error")
	}
	if got := strings.Count(out.String(), "\n"); got != 7 || strings.Count(out.String(), "attempt failed") != 2 {
		t.Errorf("%d lines:\n%s", got, out.String())
	}
}
