package client

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

// beginForward submits one request of a batch in the encoding that the server takes.
func (t *transport) beginForward(ctx context.Context, s *server, f wire.ForwardRequest, repeatable bool) (submitted, error) {
	for {
		e := t.encoding.Load().(engines.Encoding)
		r, err := t.forwardRequest(s, f, e)
		if err != nil {
			return submitted{}, err
		}
		r.repeatable = repeatable
		c, err := t.begin(ctx, r)
		if e == engines.Auto && c.status == http.StatusUnsupportedMediaType {
			t.settleEncoding(engines.Protobuf)
			t.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "client: the server refuses JSON; using protobuf", slog.Any("error", err))
			continue
		}
		if err == nil {
			t.settleEncoding(engines.JSON)
		}
		return c, err
	}
}

func (t *transport) forwardRequest(s *server, f wire.ForwardRequest, e engines.Encoding) (r request, err error) {
	r = request{path: wire.ForwardBackward, media: wire.JSONType}
	if e == engines.Protobuf {
		r.media, r.accept = wire.ProtobufType, wire.ProtobufType
	} else if f.ForwardOnly {
		r.path = wire.Forward
	}
	if r.body, err = wire.EncodeForward(r.media, f); err != nil {
		return r, invalid("data: %w", err)
	}
	if e == engines.Protobuf && s.zstd {
		r.body, r.zstd = t.zstd.EncodeAll(r.body, nil), true
	}
	return r, nil
}

// accept is the media type in which results are asked for.
func (t *transport) accept() string {
	if t.encoding.Load() == engines.Protobuf {
		return wire.ProtobufType
	}
	return wire.JSONType
}
