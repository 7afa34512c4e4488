package chat

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/bounds"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/tinker"
)

// Config is what a [Server] needs. Tokenizer and Renderer are required.
type Config struct {
	Tokenizer Tokenizer
	Renderer  Renderer
	// Open returns the model of a name that was not set with SetModel, at each request; nil knows none. An unknown name is
	// agl.ErrNotFound, one that cannot be a name agl.ErrInvalid, one that will be served later agl.ErrIllegalState, and weights
	// that cannot be read tinker.ErrDamaged.
	Open func(ctx context.Context, name string) (Model, error)
	// MaxBodyBytes bounds a request body; zero means 8 MiB.
	MaxBodyBytes int64
	// MaxTokens bounds a completion where neither the request nor the model's context does; zero means 1024.
	MaxTokens int
	// Now is the clock for the time of replies; nil means time.Now.
	Now func() time.Time
	// NewID makes the id of a reply; nil means chatcmpl- and random letters and digits.
	NewID func() string
	// Logger receives failures of the sampler and of writing replies; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 8<<20)
	c.MaxTokens = cmp.Or(c.MaxTokens, 1024)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = func() string { return "chatcmpl-" + rand.Text() }
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	switch {
	case c.Tokenizer == nil:
		return agl.Errorf(agl.CodeInvalid, "chat: Config.Tokenizer is required")
	case c.Renderer == nil:
		return agl.Errorf(agl.CodeInvalid, "chat: Config.Renderer is required")
	}
	return bounds.NotNegative("chat: Config.", bounds.Number("MaxBodyBytes", c.MaxBodyBytes), bounds.Number("MaxTokens", c.MaxTokens))
}

// Server is an [http.Handler] with POST /v1/chat/completions, GET /v1/models and /v1/models/NAME (all also without /v1) and GET /health.
// It is safe for concurrent use and starts no goroutines.
//
// A sampler returns whole completions. A streamed reply is therefore sent, token by token, when it is complete.
type Server struct {
	cfg    Config
	mux    *http.ServeMux
	routes []string // each as a method and a path
	models sync.Map // of Model, by name
}

// NewServer makes a server without models.
func NewServer(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux()}
	for _, prefix := range []string{"", "/v1"} {
		s.handle("POST", prefix+"/chat/completions", s.serveCompletion)
		s.handle("GET", prefix+"/models", s.serveModels)
		s.handle("GET", prefix+"/models/{name...}", s.serveOneModel)
	}
	s.handle("GET", "/health", s.serveHealth)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.writeError(w, newError(http.StatusNotFound, typeInvalid, "", "unknown_url",
			"unknown URL %s %s: this server has POST /v1/chat/completions and GET /v1/models; agl proxy in front of it serves the API of Anthropic, too, and that of responses if its configuration says chat_only: true for this model", r.Method, r.URL.Path))
	})
	return s, nil
}

// handle registers a route, and a JSON answer to other methods.
func (s *Server) handle(method, path string, h http.HandlerFunc) {
	s.routes = append(s.routes, method+" "+path)
	s.mux.HandleFunc(method+" "+path, h)
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", method)
		s.writeError(w, newError(http.StatusMethodNotAllowed, typeInvalid, "", "method_not_allowed", "%s takes %s, not %s", path, method, r.Method))
	})
}

// Routes returns all routes, each as a method and a path.
func (s *Server) Routes() []string { return slices.Clone(s.routes) }

// SetModel serves m under name from the next request on. Running requests finish on the model with which they began.
func (s *Server) SetModel(name string, m Model) {
	s.models.Store(name, m)
}

// Model returns the model that is served under name.
func (s *Server) Model(name string) (Model, bool) {
	model, ok := s.models.Load(name)
	if !ok {
		return Model{}, false
	}
	return model.(Model), true
}

// RemoveModel stops serving name, and reports whether it was served.
func (s *Server) RemoveModel(name string) (removed bool) {
	_, removed = s.models.LoadAndDelete(name)
	return removed
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	s.writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *Server) serveModels(w http.ResponseWriter, _ *http.Request) {
	list := modelListBody{Object: "list", Data: []modelBody{}}
	for name, model := range s.models.Range {
		list.Data = append(list.Data, s.describe(name.(string), model.(Model)))
	}
	slices.SortFunc(list.Data, func(a, b modelBody) int { return strings.Compare(a.ID, b.ID) })
	s.writeJSON(w, http.StatusOK, list)
}

func (s *Server) serveOneModel(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	model, ok := s.Model(name)
	if !ok {
		s.writeError(w, errNoModel(name))
		return
	}
	s.writeJSON(w, http.StatusOK, s.describe(name, model))
}

func (s *Server) describe(name string, model Model) modelBody {
	return modelBody{ID: name, Object: "model", Created: s.cfg.Now().Unix(), OwnedBy: "agl", MaxModelLen: model.Client.Spec().Context}
}

func errNoModel(name string) *apiError {
	return newError(http.StatusNotFound, typeInvalid, "model", "model_not_found", "the model `%s` does not exist", name)
}

func (s *Server) serveCompletion(w http.ResponseWriter, r *http.Request) {
	body, err := httpserver.ReadBody(w, r, s.cfg.MaxBodyBytes)
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			s.writeError(w, newError(http.StatusRequestEntityTooLarge, typeInvalid, "", "request_too_large", "the request body is larger than %d bytes", s.cfg.MaxBodyBytes))
			return
		}
		status, message := httpserver.BodyStatus(err)
		s.writeError(w, newError(status, typeInvalid, "", "unreadable_body", "%s", message))
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
		s.writeJSON(w, http.StatusOK, res.completion())
		return
	}
	if err := writeStream(w, res, s.cfg.Renderer); err != nil {
		s.cfg.Logger.LogAttrs(r.Context(), slog.LevelDebug, "chat: reply not delivered", slog.String("id", res.id), slog.Any("error", err))
	}
}

// complete renders, samples and reads the replies.
func (s *Server) complete(ctx context.Context, req *request) (*result, *apiError) {
	model, fail := s.model(ctx, req.Model)
	if fail != nil {
		return nil, fail
	}
	prompt, err := s.cfg.Renderer.Prompt(PromptParams{Messages: req.Messages, Tools: req.tools(), Variables: req.variables()})
	if err != nil {
		return nil, s.failure(ctx, "messages", err)
	}
	if limit := model.Client.Spec().Context; limit > 0 && len(prompt) >= limit {
		return nil, badRequest("messages", "context_length_exceeded",
			"this model's maximum context length is %d tokens; the messages take %d and leave no room for a reply", limit, len(prompt))
	}
	sampled, err := model.Client.Sample(ctx, s.sampleParams(req, model.Client.Spec(), prompt))
	if err != nil {
		return nil, s.failure(ctx, "", err)
	}
	res := &result{req: req, tok: s.cfg.Tokenizer, id: s.cfg.NewID(), created: s.cfg.Now().Unix(), version: model.Version, prompt: prompt}
	for _, seq := range sampled.Sequences {
		if bad := slices.IndexFunc(seq.Logprobs, notFinite); bad >= 0 && bool(req.Logprobs) {
			return nil, s.failure(ctx, "", agl.Errorf(agl.CodeInternal, "the sampler returned the log-probability %[2]v for token %[1]d", bad, seq.Logprobs[bad]))
		}
		if memory, ok := s.cfg.Renderer.(Rememberer); ok {
			memory.Remember(prompt, seq.Tokens)
		}
		res.choices = append(res.choices, newChoice(s.cfg.Tokenizer, streamAfter(s.cfg.Renderer, prompt), seq.Tokens, seq.Logprobs, seq.StopReason == tinker.StopToken, req.Stop))
	}
	return res, nil
}

// model finds the model of a name.
func (s *Server) model(ctx context.Context, name string) (Model, *apiError) {
	if model, ok := s.Model(name); ok {
		return model, nil
	}
	missing := errNoModel(name)
	if s.cfg.Open == nil {
		return Model{}, missing
	}
	model, err := s.cfg.Open(ctx, name)
	if agl.ErrorCode(err) == agl.CodeNotFound {
		missing.Message += ": " + err.Error()
		return Model{}, missing
	}
	if agl.ErrorCode(err) == agl.CodeIllegalState { // 429: clients ask again, and the circuit breaker of a proxy does not count it
		return Model{}, newError(http.StatusTooManyRequests, typeServer, "model", "model_not_ready", "%v", err)
	}
	if err != nil {
		return Model{}, s.failure(ctx, "model", err)
	}
	return model, nil
}

// notFinite reports a number that JSON does not have.
func notFinite(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) }

func (s *Server) sampleParams(req *request, spec tinker.ModelSpec, prompt []int32) tinker.SampleParams {
	p := tinker.SampleParams{
		Prompt: prompt, NumSamples: or(req.N, 1), MaxTokens: req.maxTokens(), Temperature: or(req.Temperature, 1),
		TopK: or(req.TopK, 0), TopP: or(req.TopP, 1), Stop: slices.Clone(s.cfg.Renderer.Stop()),
	}
	if p.MaxTokens == 0 {
		p.MaxTokens = s.cfg.MaxTokens
		if spec.Context > 0 {
			p.MaxTokens = spec.Context - len(prompt)
		}
	}
	if req.Seed != nil {
		p.Seed = new(uint64(*req.Seed))
	}
	for _, stop := range req.Stop {
		// Sampling ends at a stop string of one token. Longer ones are found afterwards.
		if ids, err := s.cfg.Tokenizer.Encode(stop); err == nil && len(ids) == 1 {
			p.Stop = append(p.Stop, ids[0])
		}
	}
	return p
}

// failure is what the client is told of an error of the renderer or the sampler.
func (s *Server) failure(ctx context.Context, param string, err error) *apiError {
	switch {
	case agl.IsContextError(err) && ctx.Err() != nil:
		return newError(statusClientClosed, typeInvalid, "", "client_closed_request", "the client closed the request")
	case agl.ErrorCode(err) == agl.CodeInvalid && !errors.Is(err, tinker.ErrDamaged):
		return badRequest(param, "invalid_value", "%v", err)
	case agl.ErrorCode(err) == agl.CodeUnavailable || agl.IsContextError(err):
		return newError(http.StatusServiceUnavailable, typeServer, "", "unavailable", "%v", err)
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelError, "chat: a completion failed", slog.Any("error", err))
	return newError(http.StatusInternalServerError, typeServer, "", "internal_error", "%v", err)
}

func (s *Server) writeError(w http.ResponseWriter, e *apiError) {
	if e.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	s.writeJSON(w, e.status, errorBody{e})
}

func (s *Server) writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := encodeResponse(v)
	if err != nil {
		s.cfg.Logger.Error("chat: encode reply", slog.Any("error", err))
		status = http.StatusInternalServerError
		body = []byte(`{"error":{"message":"the reply could not be encoded","type":"server_error","param":null,"code":"internal_error"}}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil { //nolint:gosec // it is JSON, and says so
		s.cfg.Logger.Debug("chat: reply not delivered", slog.Any("error", err))
	}
}
