package client

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

// submitForward submits one request of a batch in the encoding that the server takes, and reads the result.
func (t *transport) submitForward(ctx context.Context, s *server, f wire.ForwardRequest, repeatable bool) (outcome, error) {
	for {
		e := t.currentEncoding()
		r, err := t.forwardRequest(s, f, e)
		if err != nil {
			return outcome{}, err
		}
		r.repeatable = repeatable
		o, err := t.submit(ctx, r)
		if e == engines.Auto && o.status == http.StatusUnsupportedMediaType {
			t.settleEncoding(engines.Protobuf)
			t.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "client: the server refuses JSON; using protobuf", slog.Any("error", err))
			continue
		}
		if err == nil {
			t.settleEncoding(engines.JSON)
		}
		return o, err
	}
}

func (t *transport) forwardRequest(s *server, f wire.ForwardRequest, e engines.Encoding) (request, error) {
	if e == engines.Protobuf {
		r := request{path: wire.ForwardBackward, body: f.Protobuf(), media: wire.ProtobufType, accept: wire.ProtobufType}
		if s.zstd {
			r.body, r.zstd = t.zstd.EncodeAll(r.body, nil), true
		}
		return r, nil
	}
	r := request{path: wire.ForwardBackward}
	if f.ForwardOnly {
		r.path = wire.Forward
	}
	var err error
	if r.body, err = f.JSON(); err != nil {
		return r, invalid("data: %w", err)
	}
	return r, nil
}

// accept is the media type in which results are asked for.
func (t *transport) accept() string {
	if t.currentEncoding() == engines.Protobuf {
		return wire.ProtobufType
	}
	return wire.JSONType
}

// decodeResult reads a result with a decoder of its media type, and converts it.
func decodeResult[W, R any](rep reply, decode func(media string, body []byte) (W, error), convert func(W) (R, error)) (R, error) {
	out, err := decode(rep.media, rep.body)
	if err == nil {
		var res R
		if res, err = convert(out); err == nil {
			return res, nil
		}
	}
	var none R
	return none, agl.Errorf(agl.CodeInternal, "client: %w", err)
}
