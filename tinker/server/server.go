package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// Encoding restricts the encodings of forward_backward and of results.
type Encoding string

// The encodings.
const (
	// AnyEncoding reads both, and answers as Accept asks.
	AnyEncoding Encoding = ""
	// JSONOnly is what SkyRL 0.3 speaks, and SDKs up to 0.24.
	JSONOnly Encoding = "json"
	// ProtobufOnly is what the hosted service and TuFT want of forward_backward.
	ProtobufOnly Encoding = "protobuf"
)

// Order is what sequence ids mean.
type Order string

const (
	// Arrival runs calls in the order in which they come, and a repeat of a sequence id once.
	Arrival Order = ""
	// Strict wants the sequence ids of a model to count from 1, and answers 409 to others.
	Strict Order = "strict"
	// Ignored takes no notice of sequence ids: a repeat runs again, as on SkyRL 0.3.
	Ignored Order = "ignored"
)

// Config configures a [Server]. Service is required; the zero value of every other field is usable.
type Config struct {
	// Service is the engine.
	Service tinker.Service
	// APIKey is what clients must send as X-API-Key; empty asks for none.
	APIKey string
	// Encoding restricts encodings.
	Encoding Encoding
	// Compress asks SDKs for zstd in forward_backward. It is always understood.
	Compress bool
	// Order is what sequence ids mean.
	Order Order
	// Silent leaves out of the capabilities what only our client reads.
	Silent bool
	// Hold is how long a request waits for a result that is not there yet; zero means 30 s.
	Hold time.Duration
	// MaxResults and MaxResultBytes bound the results that are kept for repeated reads, by number and by memory; zero
	// means 1024 and 256 MiB. The oldest are dropped first, and the newest is always kept. Whoever asks for a dropped
	// result gets 410, by which the protocol tells clients to submit the call again.
	MaxResults     int
	MaxResultBytes int64
	// SessionTimeout is how long a session lives after its last sign of life; zero means 5 min. Its creation, a
	// heartbeat, and a call of one of its models or sampling sessions, from its submit to its end, are signs of life.
	// The next request for any session ends the expired ones and unloads their models.
	SessionTimeout time.Duration
	// MaxModels bounds the models in training; zero means 64. One more is refused until one is unloaded or its
	// session ends.
	MaxModels int
	// MaxSamplers bounds the weights that are held for sampling sessions; zero means 64. Beyond it those that
	// were not used for longest are let go: first those that have a name, which are opened again when they are asked
	// for; then those that have none, which are gone.
	MaxSamplers int
	// Decode is the text of tokens, for completions that end at a text; nil refuses those.
	Decode func(ids []int32) string
	// MaxBodyBytes bounds a request's body, also after decompression; zero means 64 MiB.
	MaxBodyBytes int64
	// Logger hears of faults; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Hold == 0 {
		c.Hold = 30 * time.Second
	}
	if c.MaxResults == 0 {
		c.MaxResults = 1024
	}
	if c.MaxResultBytes == 0 {
		c.MaxResultBytes = 256 << 20
	}
	if c.SessionTimeout == 0 {
		c.SessionTimeout = 5 * time.Minute
	}
	if c.MaxModels == 0 {
		c.MaxModels = 64
	}
	if c.MaxSamplers == 0 {
		c.MaxSamplers = 64
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = 64 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Service == nil:
		return invalid("Service is nil; an engine is required")
	case c.Encoding != AnyEncoding && c.Encoding != JSONOnly && c.Encoding != ProtobufOnly:
		return invalid("Encoding: %q is unknown; allowed are %q, %q", c.Encoding, JSONOnly, ProtobufOnly)
	case c.Order != Arrival && c.Order != Strict && c.Order != Ignored:
		return invalid("Order: %q is unknown; allowed are %q, %q", c.Order, Strict, Ignored)
	case c.MaxModels < 0 || c.MaxSamplers < 0:
		return invalid("MaxModels is %d, MaxSamplers %d; neither may be negative", c.MaxModels, c.MaxSamplers)
	case c.Hold < 0 || c.MaxResults < 0 || c.MaxResultBytes < 0 || c.SessionTimeout < 0 || c.MaxBodyBytes < 0:
		return invalid("Hold is %s, MaxResults %d, MaxResultBytes %d, SessionTimeout %s, MaxBodyBytes %d; none may be negative",
			c.Hold, c.MaxResults, c.MaxResultBytes, c.SessionTimeout, c.MaxBodyBytes)
	}
	return nil
}

// Server serves an engine. It is safe for concurrent use.
type Server struct {
	cfg  Config
	mux  *http.ServeMux
	stop chan struct{}
	runs sync.WaitGroup
	once sync.Once

	mu       sync.Mutex
	closed   bool
	sessions map[string]*session
	models   map[string]*model
	live     int // models that are being made or in training
	samplers map[string]*sampler
	uses     uint64              // of samplers
	changing map[tinker.Path]int // saved weights that are being replaced or deleted
	futures  map[string]*future
	finished []*future // with their results, the oldest first
	// resultBytes is the size of all results in finished.
	resultBytes int64
	ids         uint64 // of futures
	boot        string // begins their ids, so that those of a server before this one are unknown
}

// session owns models and sampling sessions.
type session struct {
	making   sync.Mutex        // held while a model or a sampling session is made, so that repeats find it
	alive    time.Time         // of the last sign of life
	running  int               // calls of its models and sampling sessions
	models   map[int64]*future // under making, as samplers
	samplers map[int64]string
	owned    []*model // those that nobody unloaded
}

// disown takes a model away. The server's lock is held.
func (of *session) disown(m *model) {
	of.owned = slices.DeleteFunc(of.owned, func(o *model) bool { return o == m })
}

// New makes a server. A Config out of range is agl.CodeInvalid.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, mux: http.NewServeMux(), stop: make(chan struct{}),
		sessions: map[string]*session{}, models: map[string]*model{}, samplers: map[string]*sampler{},
		changing: map[tinker.Path]int{},
		futures:  map[string]*future{}, boot: newID("call") + "_",
	}
	s.routes()
	return s, nil
}

// Close cancels the calls that run and waits for them. Requests that follow are refused.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.once.Do(func() { close(s.stop) })
	s.runs.Wait()
	return nil
}

// Authorized reports whether a request carries a key, as X-API-Key or as a bearer token. Every request carries
// an empty one.
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
		s.fail(w, agl.Errorf(agl.CodeUnauthorized, "%s: no API key, or a wrong one", wire.KeyHeader))
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Server) health(context.Context, struct{}) (any, error) {
	return wire.HealthResponse{Status: "ok"}, nil
}

func (s *Server) clientConfig(context.Context, wire.ClientConfigRequest) (any, error) {
	return wire.ClientConfigResponse{ProtoCompress: s.cfg.Compress, ParallelChunks: new(false)}, nil
}

func (s *Server) capabilities(ctx context.Context, _ struct{}) (any, error) {
	c, err := s.cfg.Service.Capabilities(ctx)
	if err != nil {
		return nil, err
	}
	out := wire.CapabilitiesResponse{Models: make([]wire.SupportedModel, len(c.Models))}
	for i, m := range c.Models {
		out.Models[i] = wire.SupportedModel{Name: m.Name, Context: m.Context, VocabSize: m.Vocab}
	}
	if s.cfg.Silent {
		return out, nil
	}
	out.Engine = &wire.Engine{
		Losses: make([]string, len(c.Losses)), ImmutableSnapshots: c.ImmutableSnapshots, SummedLoss: c.SummedLoss,
		OptimizerOptional: c.OptimizerOptional, Deterministic: c.Deterministic, Idempotent: s.cfg.Order != Ignored,
		LoadDiscardsGradient: true, WideSeeds: true, // tinker's interfaces demand both
	}
	for i, l := range c.Losses {
		out.Engine.Losses[i] = string(l)
	}
	return out, nil
}

func (s *Server) createSession(ctx context.Context, _ wire.CreateSessionRequest) (any, error) {
	id := newID("session")
	s.expire(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[id] = &session{alive: time.Now(), models: map[int64]*future{}, samplers: map[int64]string{}}
	return wire.CreateSessionResponse{Type: "create_session", SessionID: id}, nil
}

func newID(kind string) string {
	var b [8]byte
	rand.Read(b[:])
	return kind + "_" + hex.EncodeToString(b[:])
}

func (s *Server) heartbeat(ctx context.Context, r wire.SessionHeartbeatRequest) (any, error) {
	s.expire(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	of, err := find(s.sessions, "session", r.SessionID)
	if err != nil {
		return nil, err
	}
	of.alive = time.Now()
	return wire.TypedResult{Type: "session_heartbeat"}, nil
}

func (s *Server) session(id string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return find(s.sessions, "session", id)
}

func find[T any](in map[string]*T, what, id string) (*T, error) {
	if v, ok := in[id]; ok {
		return v, nil
	}
	return nil, agl.Errorf(agl.CodeNotFound, "%s: %q is unknown", what, id)
}

// expire ends the sessions whose last sign of life is older than SessionTimeout.
func (s *Server) expire(ctx context.Context) {
	s.mu.Lock()
	var over []*model
	for id, of := range s.sessions {
		if of.running == 0 && time.Since(of.alive) > s.cfg.SessionTimeout {
			over = append(over, of.owned...)
			delete(s.sessions, id)
			maps.DeleteFunc(s.samplers, func(_ string, from *sampler) bool { return from.session == id })
		}
	}
	for _, m := range over {
		delete(s.models, m.id)
	}
	s.live -= len(over)
	s.mu.Unlock()
	for _, m := range over {
		s.unload(ctx, m)
	}
}

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, "tinker: "+format, args...)
}
