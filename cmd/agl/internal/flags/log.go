package flags

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/lmittmann/tint"

	"github.com/agl-go/agl/cmd/agl/internal/console"
)

// Log has the flags of logging. Its command sets the variable logLevel to the default level.
type Log struct {
	LogLevel  LogLevel `default:"${logLevel}" help:"Log from this level on: debug, info, warn or error."`
	LogFormat string   `default:"text" enum:"text,json" help:"How log lines are written, to standard error: text or json."`
}

// Logger returns a logger that writes to w, with colours on a terminal unless NO_COLOR is set. With w standard error, it also takes
// what libraries write to the log package.
func (f Log) Logger(w io.Writer) *slog.Logger {
	logger := f.logger(w)
	if w == io.Writer(os.Stderr) {
		TakeLibraries(logger)
	}
	return logger
}

// TakeLibraries makes what libraries write to the log package lines of a logger.
func TakeLibraries(to *slog.Logger) {
	log.SetFlags(0)
	log.SetOutput(&libraryLog{to})
}

// libraryLog is the output of the log package. It leaves out quotations of what a server has sent, which may be a model's reply.
type libraryLog struct{ to *slog.Logger }

// Write logs one line.
func (l *libraryLog) Write(line []byte) (int, error) {
	text, _, quoted := strings.Cut(strings.TrimSpace(string(line)), ` starting with "`)
	if quoted {
		text += " (its text is left out)"
	}
	l.to.Warn(text)
	return len(line), nil
}

func (f Log) logger(w io.Writer) *slog.Logger {
	level := slog.Level(f.LogLevel)
	switch {
	case f.LogFormat == "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: withUnit}))
	case console.IsTerminal(w):
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: os.Getenv("NO_COLOR") != ""}))
	default:
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
	}
}

// withUnit writes durations as in text, such as 10s. As numbers they would be nanoseconds, which no reader of a line can see.
func withUnit(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// LogLevel is a level by its name, in any case.
type LogLevel slog.Level

// UnmarshalText reads a level.
func (l *LogLevel) UnmarshalText(text []byte) error {
	switch strings.ToLower(string(text)) {
	case "debug":
		*l = LogLevel(slog.LevelDebug)
	case "info":
		*l = LogLevel(slog.LevelInfo)
	case "warn", "warning":
		*l = LogLevel(slog.LevelWarn)
	case "error":
		*l = LogLevel(slog.LevelError)
	default:
		return fmt.Errorf("got %q, must be debug, info, warn or error", text)
	}
	return nil
}
