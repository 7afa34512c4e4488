package server

import (
	"context"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

// New makes a server, which the caller closes. A Config out of range is agl.CodeInvalid.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, mux: http.NewServeMux(), stop: make(chan struct{}), boot: newID("call") + "_",
		inflating: make(chan struct{}, 2), sessions: map[string]*session{}, models: map[string]*model{}, samplers: map[string]*sampler{},
		changing: map[tinker.Path]int{}, futures: map[string]*future{},
	}
	s.routes()
	return s, nil
}

// Close cancels the running calls and waits for them. It refuses later requests.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
		for _, f := range s.futures {
			if f.cancel != nil {
				f.cancel()
			}
		}
	}
	s.mu.Unlock()
	s.calls.Wait()
	return nil
}

// Authorized reports whether a request carries a key, as X-API-Key or as a bearer token. An empty key admits every request.
func Authorized(r *http.Request, key string) bool {
	given := r.Header.Get(wire.KeyHeader)
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && given == "" {
		given = bearer
	}
	return key == "" || subtle.ConstantTimeCompare([]byte(given), []byte(key)) == 1
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBodyBytes)
	if r.URL.Path != wire.Prefix+wire.Healthz && !Authorized(r, s.cfg.APIKey) {
		s.fail(w, agl.Errorf(agl.CodeUnauthorized, "%s: the API key is missing or wrong", wire.KeyHeader))
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Server) routes() {
	route(s, http.MethodGet, wire.Healthz, plain(s.health))
	route(s, http.MethodGet, wire.ServerCapabilities, plain(s.capabilities))
	route(s, http.MethodPost, wire.ClientConfig, plain(s.clientConfig))
	route(s, http.MethodPost, wire.CreateSession, plain(s.createSession))
	route(s, http.MethodPost, wire.SessionHeartbeat, plain(s.heartbeat))
	route(s, http.MethodPost, wire.CreateModel, plain(s.createModel))
	route(s, http.MethodPost, wire.GetInfo, plain(s.getInfo))
	route(s, http.MethodPost, wire.UnloadModel, plain(s.unloadModel))
	route(s, http.MethodPost, wire.WeightsInfo, plain(s.weightsInfo))
	route(s, http.MethodPost, wire.CreateSamplingSession, plain(s.createSamplingSession))
	route(s, http.MethodPost, wire.OptimStep, s.optimStep)
	for _, path := range []string{wire.SaveWeights, wire.SaveWeightsForSampler} {
		route(s, http.MethodPost, path, func(ctx context.Context, r wire.SaveWeightsRequest, body []byte) (any, error) {
			return s.save(ctx, r, path, body)
		})
	}
	route(s, http.MethodPost, wire.LoadWeights, s.loadWeights)
	route(s, http.MethodPost, wire.Sample, s.sample)
	s.mux.HandleFunc("POST "+wire.Prefix+wire.ForwardBackward, s.forward)
	s.mux.HandleFunc("POST "+wire.Prefix+wire.Forward, s.forward)
	s.mux.HandleFunc("POST "+wire.Prefix+wire.RetrieveFuture, s.retrieve)
	s.mux.HandleFunc("DELETE "+wire.Prefix+wire.CheckpointPath("{model}", "{kind}", "{name}"), s.deleteWeights)
	s.mux.HandleFunc("GET "+wire.Prefix+wire.SamplerPath("{id}"), func(w http.ResponseWriter, r *http.Request) {
		out, err := s.getSampler(r.PathValue("id"))
		s.answer(w, out, err)
	})
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, agl.Errorf(agl.CodeNotFound, "%s %s is unknown", r.Method, r.URL.Path))
	})
}

// handler answers a call with a message, which it may need as it came, too.
type handler[T any] func(ctx context.Context, message T, body []byte) (any, error)

// plain is a handler that does not need the body as it came.
func plain[T any](do func(ctx context.Context, message T) (any, error)) handler[T] {
	return func(ctx context.Context, message T, _ []byte) (any, error) { return do(ctx, message) }
}

// route serves a call whose request and answer are JSON.
func route[T any](s *Server, method, path string, do handler[T]) {
	s.mux.HandleFunc(method+" "+wire.Prefix+path, func(w http.ResponseWriter, r *http.Request) {
		var message T
		body, err := s.read(r)
		if err == nil && method != http.MethodGet {
			err = decode(body, &message)
		}
		var out any
		if err == nil {
			out, err = do(r.Context(), message, body)
		}
		if p, ok := out.(pending); ok {
			out = s.withResult(r, p)
		}
		s.answer(w, out, err)
	})
}

func (s *Server) health(context.Context, struct{}) (any, error) {
	return wire.HealthResponse{Status: "ok"}, nil
}

func (s *Server) clientConfig(context.Context, wire.ClientConfigRequest) (any, error) {
	return wire.ClientConfigResponse{ProtoCompress: s.cfg.Compress, ParallelChunks: new(false)}, nil
}

func (s *Server) capabilities(ctx context.Context, _ struct{}) (any, error) {
	can, err := s.cfg.Service.Capabilities(ctx)
	if err != nil {
		return nil, err
	}
	out := wire.CapabilitiesResponse{Models: make([]wire.SupportedModel, len(can.Models))}
	for i, m := range can.Models {
		out.Models[i] = wire.SupportedModel{Name: m.Name, Context: m.Context, VocabSize: m.Vocab}
	}
	if !s.cfg.HideEngine {
		out.Engine = engines.ToWire(can, s.cfg.Order)
	}
	return out, nil
}
