package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/lmittmann/tint"
)

// logFlags choose what a server logs, and how.
type logFlags struct {
	LogLevel  logLevel `default:"info" help:"Log from this level on: debug, info, warn or error."`
	LogFormat string   `default:"text" enum:"text,json"     help:"How log lines are written, to standard error: text or json."`
}

// logLevel is a slog level in its four plain names, in any case.
type logLevel slog.Level

// UnmarshalText reads a level.
func (l *logLevel) UnmarshalText(text []byte) error {
	switch strings.ToLower(string(text)) {
	case "debug":
		*l = logLevel(slog.LevelDebug)
	case "info":
		*l = logLevel(slog.LevelInfo)
	case "warn", "warning":
		*l = logLevel(slog.LevelWarn)
	case "error":
		*l = logLevel(slog.LevelError)
	default:
		return fmt.Errorf("got %q, must be debug, info, warn or error", text)
	}
	return nil
}

func (f logFlags) logger(w io.Writer) *slog.Logger {
	level := slog.Level(f.LogLevel)
	switch {
	case f.LogFormat == "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	case isTerminal(w):
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: os.Getenv("NO_COLOR") != ""}))
	default:
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
	}
}

// isTerminal reports whether what is written to w is read on a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}
