package server

import (
	"cmp"
	"context"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

// New makes a server, which the caller closes. A Config out of range is agl.ErrInvalid.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, mux: http.NewServeMux(), scopes: map[string]access.Scope{}, stop: make(chan struct{}), boot: newID("call") + "_",
		inflating: make(chan struct{}, 2), sessions: map[string]*session{}, models: map[string]*model{}, samplers: map[string]*sampler{},
		changing: map[tinker.Path]int{}, futures: map[string]*future{}, requests: access.NewOpen(access.MaxOpen),
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

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Who may sample from models, and who may train them.
const (
	samplers = access.Live | access.Runner | access.Train
	trainers = access.Train
)

func (s *Server) routes() {
	const get, post = http.MethodGet, http.MethodPost
	route(s, get, wire.Healthz, access.Public, plain(s.health))
	route(s, get, wire.ServerCapabilities, samplers|access.Readers, plain(s.capabilities))
	route(s, post, wire.ClientConfig, samplers|access.Readers, plain(s.clientConfig))
	route(s, post, wire.CreateSession, samplers, plain(s.createSession))
	route(s, post, wire.SessionHeartbeat, samplers, plain(s.heartbeat))
	route(s, post, wire.CreateModel, trainers, plain(s.createModel))
	route(s, post, wire.GetInfo, samplers, plain(s.getInfo))
	route(s, post, wire.UnloadModel, trainers, plain(s.unloadModel))
	route(s, post, wire.WeightsInfo, samplers, plain(s.weightsInfo))
	route(s, post, wire.CreateSamplingSession, samplers, plain(s.createSamplingSession))
	route(s, post, wire.OptimStep, trainers, s.optimStep)
	for _, path := range []string{wire.SaveWeights, wire.SaveWeightsForSampler} {
		route(s, post, path, trainers, func(ctx context.Context, r wire.SaveWeightsRequest, body []byte) (any, error) {
			return s.save(ctx, r, path, body)
		})
	}
	route(s, post, wire.LoadWeights, trainers, s.loadWeights)
	route(s, post, wire.Sample, samplers, s.sample)
	s.handle(post, wire.ForwardBackward, trainers, s.forward)
	s.handle(post, wire.Forward, trainers, s.forward)
	s.handle(post, wire.RetrieveFuture, samplers, s.retrieve)
	s.handle(http.MethodDelete, weightsPath, trainers, s.deleteWeights)
	s.handle(get, wire.SamplerPath("{id}"), samplers, func(w http.ResponseWriter, r *http.Request) {
		out, err := s.getSampler(r.PathValue("id"))
		s.answer(w, out, err)
	})
	s.mux.HandleFunc("/", s.guarded(access.Any, func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, agl.Errorf(agl.CodeNotFound, "%s %s is unknown", r.Method, r.URL.Path))
	}))
}

// handle serves a call that declares who may make it. Without a scope nobody may.
func (s *Server) handle(method, path string, scope access.Scope, do http.HandlerFunc) {
	pattern := method + " " + wire.Prefix + path
	s.scopes[pattern] = scope
	if audited[path] {
		do = s.audit(do)
	}
	s.mux.HandleFunc(pattern, s.guarded(scope, do))
}

var weightsPath = wire.CheckpointPath("{model}", "{kind}", "{name}")

// audited are the calls that Config.Audit records.
var audited = map[string]bool{
	wire.CreateModel: true, wire.UnloadModel: true, wire.SaveWeights: true, wire.SaveWeightsForSampler: true, wire.LoadWeights: true, weightsPath: true,
}

// audit records a call that has succeeded or, if its result comes later, has begun.
func (s *Server) audit(do http.HandlerFunc) http.HandlerFunc {
	if s.cfg.Audit == nil {
		return do
	}
	return func(w http.ResponseWriter, r *http.Request) {
		answer := &httpserver.StatusWriter{ResponseWriter: w}
		do(answer, r)
		guard := access.Guard{Key: s.cfg.APIKey, Keys: s.cfg.Access}
		key, status := guard.KeyOf(r), cmp.Or(answer.Status, http.StatusOK)
		if key != "" && status < http.StatusBadRequest {
			access.Tell(s.cfg.Audit, s.cfg.Logger, r, key, status)
		}
	}
}

// guarded serves the callers who have one of the scopes.
func (s *Server) guarded(scope access.Scope, do http.HandlerFunc) http.HandlerFunc {
	guard := access.Guard{Key: s.cfg.APIKey, Keys: s.cfg.Access, Failed: s.cfg.Failed, Open: s.requests}
	return func(w http.ResponseWriter, r *http.Request) {
		if err := guard.Allow(r, scope); err != nil {
			s.fail(w, err)
			return
		}
		leave, err := guard.Enter(r)
		if err != nil {
			s.fail(w, err)
			return
		}
		defer leave()
		do(w, r)
	}
}

// handler answers a call with a message, which it may need as it came, too.
type handler[T any] func(ctx context.Context, message T, body []byte) (any, error)

// plain is a handler that does not need the body as it came.
func plain[T any](do func(ctx context.Context, message T) (any, error)) handler[T] {
	return func(ctx context.Context, message T, _ []byte) (any, error) { return do(ctx, message) }
}

// route serves a call whose request and answer are JSON.
func route[T any](s *Server, method, path string, scope access.Scope, do handler[T]) {
	s.handle(method, path, scope, func(w http.ResponseWriter, r *http.Request) {
		var message T
		body, err := s.read(w, r)
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
