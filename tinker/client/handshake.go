package client

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

// server is what the handshake found out.
type server struct {
	engine     engines.Engine
	models     []tinker.ModelSpec
	chunkData  int
	chunkBytes int
	maxSamples int  // in flight; 0 is no limit
	zstd       bool // protobuf requests may be compressed
}

// handshake asks a server for what it wants of its clients and for its models. Servers may lack either call.
func (t *transport) handshake(ctx context.Context) (*server, error) {
	var flags wire.ClientConfigResponse
	err := t.ask(ctx, request{path: wire.ClientConfig, message: wire.ClientConfigRequest{SDKVersion: wire.SDKVersion}}, &flags)
	if err != nil && !errors.Is(err, agl.ErrNotFound) {
		return nil, err
	}
	var caps wire.CapabilitiesResponse
	err = t.ask(ctx, request{method: http.MethodGet, path: wire.ServerCapabilities}, &caps)
	if err != nil && !errors.Is(err, agl.ErrNotFound) {
		return nil, err
	}
	s := &server{
		engine:     engines.FromWire(caps.Engine),
		chunkData:  cmp.Or(t.cfg.ChunkData, max(flags.MaxChunkLen, 0), wire.DefaultChunkLen),
		chunkBytes: cmp.Or(t.cfg.ChunkBytes, max(flags.MaxChunkBytes, 0), wire.DefaultChunkBytes),
		maxSamples: flags.MaxSamples, zstd: flags.ProtoCompress,
	}
	if t.cfg.Engine != nil {
		s.engine = t.cfg.Engine.WithDefaults()
	}
	for _, m := range caps.Models {
		s.models = append(s.models, tinker.ModelSpec{
			Name: m.Name, Vocab: cmp.Or(max(m.VocabSize, 0), s.engine.Vocab), Context: cmp.Or(max(m.Context, 0), s.engine.Context),
		})
	}
	if flags.ProtoWrite {
		t.settleEncoding(engines.Protobuf)
	}
	return s, nil
}

// baseModel finds a base model; an empty name is the first one.
func (s *server) baseModel(name string) (tinker.ModelSpec, error) {
	for _, m := range s.models {
		if name == "" || m.Name == name {
			return m, nil
		}
	}
	if len(s.models) == 0 && name != "" {
		// The server does not say which models it has.
		return tinker.ModelSpec{Name: name, Vocab: s.engine.Vocab, Context: s.engine.Context}, nil
	}
	return tinker.ModelSpec{}, agl.Errorf(agl.CodeNotFound, "client: base_model: %q is unknown; the server has %d models", name, len(s.models))
}
