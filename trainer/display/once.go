package display

import (
	"context"
	"log/slog"
	"strings"
	"sync"
)

// Once returns a logger that drops a warning about an error if there was one with the
// same message and the same last line of its error: an agent that fails does so
// hundreds of times.
func Once(l *slog.Logger) *slog.Logger {
	return slog.New(&once{Handler: l.Handler(), seen: &sync.Map{}})
}

type once struct {
	slog.Handler

	seen *sync.Map // of keys, shared by the loggers that are made of this one
}

func (h *once) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		reason := ""
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "error" {
				reason = strings.TrimSpace(a.Value.String())
			}
			return a.Key != "error"
		})
		key := r.Message + "\n" + reason[strings.LastIndexByte(reason, '\n')+1:]
		if _, repeated := h.seen.LoadOrStore(key, true); repeated && reason != "" {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h *once) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &once{Handler: h.Handler.WithAttrs(attrs), seen: h.seen}
}

func (h *once) WithGroup(name string) slog.Handler {
	return &once{Handler: h.Handler.WithGroup(name), seen: h.seen}
}
