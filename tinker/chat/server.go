package chat

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// Config is what a [Server] needs. Tokenizer and Renderer are required.
type Config struct {
	Tokenizer Tokenizer
	Renderer  Renderer
	// Open finds the model of a name that SetModel did not give, for each request; nil knows none. What it does
	// not know is agl.CodeNotFound, what cannot be a name agl.CodeInvalid, and weights that are there and cannot be
	// read are tinker.ErrDamaged.
	Open func(ctx context.Context, name string) (Model, error)
	// MaxBodyBytes bounds a request body; zero means 8 MiB.
	MaxBodyBytes int64
	// MaxTokens bounds a completion where neither the request nor the model's context does; zero means
	// 1024.
	MaxTokens int
	// Now gives the time of replies; nil means time.Now.
	Now func() time.Time
	// NewID gives the id of a reply; nil means chatcmpl- and 24 random hexadecimal digits.
	NewID func() string
	// Logger receives failures to write a reply and faults of the sampler; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = 8 << 20
	}
	if c.MaxTokens == 0 {
		c.MaxTokens = 1024
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = func() string {
			var b [12]byte
			rand.Read(b[:])
			return "chatcmpl-" + hex.EncodeToString(b[:])
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Tokenizer == nil:
		return agl.Errorf(agl.CodeInvalid, "chat: Config.Tokenizer is required")
	case c.Renderer == nil:
		return agl.Errorf(agl.CodeInvalid, "chat: Config.Renderer is required")
	case c.MaxBodyBytes < 0 || c.MaxTokens < 0:
		return agl.Errorf(agl.CodeInvalid, "chat: Config.MaxBodyBytes is %d and MaxTokens %d; neither may be negative", c.MaxBodyBytes, c.MaxTokens)
	}
	return nil
}

// Server is an [http.Handler] with POST /v1/chat/completions, GET /v1/models (both also without /v1) and
// GET /health. It is safe for concurrent use and starts no goroutines.
//
// The sampler's protocol gives whole completions, so a streamed reply is sent when it is complete, token by
// token.
type Server struct {
	cfg    Config
	mux    *http.ServeMux
	mu     sync.Mutex // orders writers of models
	models atomic.Pointer[map[string]Model]
}

// Model is what a model name stands for.
type Model struct {
	// Client draws the tokens.
	Client tinker.SamplingClient
	// Version is sent with every reply as system_fingerprint; empty leaves it out.
	Version string
}

// NewServer makes a server without models.
func NewServer(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux()}
	s.models.Store(&map[string]Model{})
	for _, prefix := range []string{"", "/v1"} {
		s.handle("POST", prefix+"/chat/completions", s.serveCompletion)
		s.handle("GET", prefix+"/models", s.serveModels)
	}
	s.handle("GET", "/health", s.serveHealth)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.writeError(w, clientError(http.StatusNotFound, "unknown_url", "unknown URL "+r.Method+" "+r.URL.Path))
	})
	return s, nil
}

// handle registers a route, and a JSON answer for other methods on it.
func (s *Server) handle(method, path string, h http.HandlerFunc) {
	s.mux.HandleFunc(method+" "+path, h)
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", method)
		s.writeError(w, clientError(http.StatusMethodNotAllowed, "method_not_allowed", path+" takes "+method+", not "+r.Method))
	})
}

// SetModel serves m under name from the next request on; requests that run already finish on what they
// began with.
func (s *Server) SetModel(name string, m Model) {
	s.update(func(models map[string]Model) { models[name] = m })
}

// RemoveModel stops serving name. It reports whether name was served.
func (s *Server) RemoveModel(name string) (removed bool) {
	s.update(func(models map[string]Model) {
		_, removed = models[name]
		delete(models, name)
	})
	return removed
}

func (s *Server) update(change func(models map[string]Model)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	models := maps.Clone(*s.models.Load())
	change(models)
	s.models.Store(&models)
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	s.writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *Server) serveModels(w http.ResponseWriter, _ *http.Request) {
	models := *s.models.Load()
	list := modelList{Object: "list", Data: []modelCard{}}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		list.Data = append(list.Data, modelCard{
			ID: name, Object: "model", Created: s.cfg.Now().Unix(), OwnedBy: "agl",
			MaxModelLen: models[name].Client.Spec().Context,
		})
	}
	s.writeJSON(w, http.StatusOK, list)
}

// result is everything that a completed request says.
type result struct {
	req     *request
	id      string
	created int64
	version string
	prompt  []int32
	replies []reply
}

func (s *Server) serveCompletion(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBodyBytes))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			s.writeError(w, clientError(http.StatusRequestEntityTooLarge, "request_too_large", "the request body is larger than this server takes"))
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.writeError(w, clientError(http.StatusRequestTimeout, "request_timeout", "the request body did not arrive in time"))
			return
		}
		s.writeError(w, badRequest("", "", "the request body could not be read: %v", err))
		return
	}
	req, fail := decodeRequest(body)
	if fail != nil {
		s.writeError(w, fail)
		return
	}
	res, fail := s.complete(r.Context(), req)
	if fail != nil {
		s.writeError(w, fail)
		return
	}
	if !req.Stream {
		s.writeCompletion(w, res)
		return
	}
	if err := s.writeStream(w, res); err != nil {
		s.cfg.Logger.LogAttrs(r.Context(), slog.LevelDebug, "chat: reply not delivered", slog.String("id", res.id), slog.Any("error", err))
	}
}

// complete renders, samples and reads the replies.
func (s *Server) complete(ctx context.Context, req *request) (*result, *apiError) {
	model, fail := s.model(ctx, req.Model)
	if fail != nil {
		return nil, fail
	}
	prompt, err := s.cfg.Renderer.Prompt(PromptParams{Messages: req.messages(), Tools: req.tools(), Variables: req.variables()})
	if err != nil {
		return nil, s.failure(ctx, "messages", err)
	}
	if limit := model.Client.Spec().Context; limit > 0 && len(prompt) >= limit {
		return nil, badRequest("messages", "context_length_exceeded",
			"this model's maximum context length is %d tokens; the messages make %d and leave no room for a reply", limit, len(prompt))
	}
	sampled, err := model.Client.Sample(ctx, s.sampleParams(req, model.Client.Spec(), prompt))
	if err != nil {
		return nil, s.failure(ctx, "", err)
	}
	res := &result{req: req, id: s.cfg.NewID(), created: s.cfg.Now().Unix(), version: model.Version, prompt: prompt}
	for _, seq := range sampled.Sequences {
		if bad := slices.IndexFunc(seq.Logprobs, notFinite); bad >= 0 && bool(req.Logprobs) {
			return nil, s.failure(ctx, "", agl.Errorf(agl.CodeInternal, "the sampler gave token %d the log-probability %v", bad, seq.Logprobs[bad]))
		}
		if memory, ok := s.cfg.Renderer.(Rememberer); ok {
			memory.Remember(prompt, seq.Tokens)
		}
		res.replies = append(res.replies, newReply(s.cfg.Tokenizer, s.cfg.Renderer, seq.Tokens, seq.Logprobs, seq.StopReason == tinker.StopToken, req.Stop))
	}
	return res, nil
}

// model finds the model of a name.
func (s *Server) model(ctx context.Context, name string) (Model, *apiError) {
	if model, ok := (*s.models.Load())[name]; ok {
		return model, nil
	}
	missing := clientError(http.StatusNotFound, "model_not_found", "the model `"+name+"` does not exist")
	missing.Param = "model"
	if s.cfg.Open == nil {
		return Model{}, missing
	}
	model, err := s.cfg.Open(ctx, name)
	if agl.ErrorCode(err) == agl.CodeNotFound {
		missing.Message += ": " + err.Error()
		return Model{}, missing
	}
	if err != nil {
		return Model{}, s.failure(ctx, "model", err)
	}
	return model, nil
}

// notFinite reports what JSON has no number for.
func notFinite(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) }

func (s *Server) sampleParams(req *request, spec tinker.ModelSpec, prompt []int32) tinker.SampleParams {
	p := tinker.SampleParams{
		Prompt: prompt, NumSamples: 1, MaxTokens: req.maxTokens(), Temperature: 1, TopP: 1,
		Stop: slices.Clone(s.cfg.Renderer.Stop()),
	}
	if p.MaxTokens == 0 {
		p.MaxTokens = s.cfg.MaxTokens
		if spec.Context > 0 {
			p.MaxTokens = spec.Context - len(prompt)
		}
	}
	if req.N != nil {
		p.NumSamples = *req.N
	}
	if req.Temperature != nil {
		p.Temperature = *req.Temperature
	}
	if req.TopP != nil {
		p.TopP = *req.TopP
	}
	if req.TopK != nil {
		p.TopK = *req.TopK
	}
	if req.Seed != nil {
		seed := uint64(*req.Seed)
		p.Seed = &seed
	}
	for _, stop := range req.Stop {
		// A stop string of one token ends the sampling there; longer ones are found afterwards.
		if ids, err := s.cfg.Tokenizer.Encode(stop); err == nil && len(ids) == 1 {
			p.Stop = append(p.Stop, ids[0])
		}
	}
	return p
}

// failure turns an error of the renderer or the sampler into the caller's view of it.
func (s *Server) failure(ctx context.Context, param string, err error) *apiError {
	switch {
	case agl.IsContextError(err) && ctx.Err() != nil:
		// The client has left; nobody reads this.
		return clientError(statusClientClosed, "client_closed_request", "the client closed the request")
	case agl.ErrorCode(err) == agl.CodeInvalid && !errors.Is(err, tinker.ErrDamaged):
		return badRequest(param, "invalid_value", "%v", err)
	case agl.ErrorCode(err) == agl.CodeUnavailable || agl.IsContextError(err):
		return serverError(http.StatusServiceUnavailable, "unavailable", err.Error())
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelError, "chat: a completion failed", slog.Any("error", err))
	return serverError(http.StatusInternalServerError, "internal_error", err.Error())
}
