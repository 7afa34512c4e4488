package proxy

import (
	"context"
	"log/slog"
	"strings"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy/exchange"
	"github.com/agl-go/agl/proxy/record"
)

// callLog writes a line for each call.
type callLog struct {
	log      *slog.Logger
	info     bool // at level info instead of debug
	contents bool // with the complete requests and replies
}

func (l *callLog) write(ctx context.Context, in *record.Input, used exchange.Usage) {
	level := slog.LevelDebug
	if l.info {
		level = slog.LevelInfo
	}
	if !l.log.Enabled(ctx, level) {
		return
	}
	list := make([]slog.Attr, 0, 24)
	list = append(list,
		bounded("path", in.Path), bounded("model", in.Model), bounded("rollout", in.RolloutID), bounded("attempt", in.AttemptID),
		slog.Int("status", in.Status), slog.Bool("stream", in.Stream), slog.Bool("delivered", in.Delivered),
		slog.Float64("seconds", in.End.Sub(in.Start).Seconds()), slog.Int("tries", in.Tries),
		slog.Int64("prompt_tokens", used.Prompt), slog.Int64("completion_tokens", used.Completion),
	)
	if key, ok := ctx.Value(keyOfCall{}).(string); ok {
		list = append(list, slog.String("key", key))
	}
	if in.Backend != "" {
		list = append(list, slog.String("backend", in.Backend), slog.String("version", in.Version))
	}
	if !in.Sent.IsZero() {
		list = append(list, slog.Float64("queue_seconds", in.Sent.Sub(in.Start).Seconds()))
		if !in.FirstByte.IsZero() {
			list = append(list, slog.Float64("first_byte_seconds", in.FirstByte.Sub(in.Sent).Seconds()))
		}
	}
	if in.Cached {
		list = append(list, slog.Bool("cached", true))
	}
	if in.Outcome != "" {
		list = append(list, slog.String("outcome", string(in.Outcome)))
	}
	if in.Fault != "" {
		list = append(list, bounded("fault", in.Fault), slog.String("source", in.Source))
	}
	if l.contents {
		list = append(list, slog.String("request", string(in.Request)))
		switch {
		case in.Streamed != nil:
			list = append(list, slog.String("reply", string(in.Streamed.AppendJSON(nil))))
		case in.Reply != nil:
			list = append(list, slog.String("reply", string(in.Reply)))
		}
	}
	l.log.LogAttrs(ctx, level, "model call", list...)
}

// keyOfCall is the key of a call's context under which the id of its caller's key is.
type keyOfCall struct{}

// withKey adds the id of the caller's key to the context of a call. A caller without a key of the store adds nothing.
func withKey(ctx context.Context, of *access.Subject) context.Context {
	if of == nil || of.ID == "" {
		return ctx
	}
	return context.WithValue(ctx, keyOfCall{}, of.ID)
}

// maxLogged is the most bytes of a client's text in a line.
const maxLogged = 1024

// bounded returns an attribute with the first maxLogged bytes of a text.
func bounded(name, text string) slog.Attr {
	if len(text) > maxLogged {
		text = strings.ToValidUTF8(text[:maxLogged], "") + "…"
	}
	return slog.String(name, text)
}
