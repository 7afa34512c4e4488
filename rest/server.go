package rest

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/agl-go/agl"
)

// ServerConfig configures a [Server]. Store is required; the zero value of
// every other field is usable.
type ServerConfig struct {
	// Store is what the server is in front of. A claim whose answer is lost is
	// returned where the store's Capabilities say that it can be; elsewhere it waits
	// for its deadline.
	Store agl.Store
	// Token is asked of every request but GET /v1/agl/health and /v1/agl/ready,
	// as a bearer token or as the password of HTTP Basic. The empty one asks
	// nothing.
	Token string
	// CORSOrigins are the origins whose pages may call; "*" is every origin.
	CORSOrigins []string
	// MaxBodyBytes bounds a request's body, after decompression. Default 64 MiB.
	MaxBodyBytes int64
	// EventHeartbeat is how often an event stream without events carries a
	// comment, so that a dead connection is noticed. Default 15 s.
	EventHeartbeat time.Duration
	// Metrics are what the server counts into and GET /metrics shows. Default ones
	// of the server's own.
	Metrics *Metrics
	// UI serves what lies outside /v1. Default a plain page at / that names the
	// version and links to what there is to see.
	UI http.Handler
	// Version is shown on the plain page.
	Version string
	// Logger receives faults that a client is not told about. Default discards.
	Logger *slog.Logger
}

func (c ServerConfig) withDefaults() ServerConfig {
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = 64 << 20
	}
	if c.EventHeartbeat == 0 {
		c.EventHeartbeat = eventHeartbeat
	}
	if c.Version == "" {
		c.Version = "(devel)"
	}
	if c.UI == nil {
		c.UI = plainPage(c.Version)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c ServerConfig) validate() error {
	switch {
	case c.Store == nil:
		return agl.Errorf(agl.CodeInvalid, "rest: Store: got nil, must be a store")
	case c.MaxBodyBytes < 0:
		return agl.Errorf(agl.CodeInvalid, "rest: MaxBodyBytes: got %d, must not be negative", c.MaxBodyBytes)
	case c.EventHeartbeat < 0:
		return agl.Errorf(agl.CodeInvalid, "rest: EventHeartbeat: got %s, must not be negative", c.EventHeartbeat)
	}
	return nil
}

// Server serves the API over a store. It starts no goroutine that outlives a
// request.
type Server struct {
	config    ServerConfig
	store     agl.Store
	can       agl.Capabilities // of the store
	token     [sha256.Size]byte
	mux       *http.ServeMux
	metrics   *Metrics
	calls     sync.Pool // of *call
	bodies    sync.Pool // of *[]byte, memory of large bodies
	emptyGzip []byte    // nothing, compressed
	jsonType  []string  // the Content-Type of answers; shared, never written to
	abandoned abandoned
	draining  chan struct{}
	drain     func()
	readiness readiness
	trouble   trouble
}

var _ http.Handler = (*Server)(nil)

// NewServer returns a server for config.Store.
func NewServer(config ServerConfig) (*Server, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	empty, err := compress(nil)
	if err != nil {
		return nil, err
	}
	m := config.Metrics
	if m == nil {
		if m, err = NewMetrics(prometheus.NewRegistry()); err != nil {
			return nil, err
		}
	}
	s := &Server{
		config:    config,
		store:     config.Store,
		token:     sha256.Sum256([]byte(config.Token)),
		mux:       http.NewServeMux(),
		metrics:   m,
		emptyGzip: empty,
		jsonType:  []string{"application/json"},
		draining:  make(chan struct{}),
	}
	s.can = config.Store.Capabilities()
	s.calls.New = func() any { return newCall(s) }
	s.drain = sync.OnceFunc(func() { close(s.draining) })
	for path, methods := range s.routes() {
		s.mux.Handle(path, s.endpoint(path, methods))
	}
	return s, nil
}

// Drain releases blocked dequeues, waits and event streams at once: they are
// answered with what there is. Other requests that have begun are executed and
// answered as ever; later ones are refused with 503, so that none is executed on
// a connection that is about to be closed, and the server is no longer ready.
// Call it before http.Server.Shutdown, which waits for the answers.
func (s *Server) Drain() { s.drain() }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	c := s.newCall(w, r)
	defer s.finish(c, start)
	if len(s.config.CORSOrigins) > 0 && s.cors(c) {
		return
	}
	if probe := r.URL.Path == healthPath || r.URL.Path == readyPath; !probe {
		if s.config.Token != "" && !s.authorized(r) {
			if c.spanToken = spanToken(r); c.spanToken == "" {
				s.refuse(c)
				return
			}
		}
		if s.drained() {
			c.Header()["Connection"] = []string{"close"}
			c.fail(agl.Errorf(agl.CodeUnavailable, "the server is shutting down"))
			return
		}
	}
	s.mux.ServeHTTP(c, r)
}

// finish counts a call and keeps its buffers for another one.
func (s *Server) finish(c *call, start time.Time) {
	if c.status == 0 && c.request.Context().Err() != nil {
		c.status = statusClientGone
	}
	took := time.Since(start)
	if c.answers != nil {
		c.answers.observe(c.status, took)
	} else {
		s.metrics.request(c.template, c.request.Method, c.status).observe(took)
	}
	s.release(c)
}

// handler answers a call; an error that it returns is what it has not answered.
type handler func(c *call) error

type methods map[string]handler

// endpoint serves one path. As in the reference, a GET where there is none is
// 404 and any other method 405.
func (s *Server) endpoint(path string, m methods) http.Handler {
	allowed := make([]string, 0, len(m))
	counted := make(map[string]*answers, len(m))
	for method := range m {
		allowed = append(allowed, method)
		counted[method] = &answers{metrics: s.metrics, template: path, method: method}
	}
	slices.Sort(allowed)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := w.(*call)
		if !ok {
			http.Error(w, "the mux is not to be used by itself", http.StatusInternalServerError)
			return
		}
		c.template = path
		if handle, ok := m[r.Method]; ok {
			c.answers = counted[r.Method]
			if err := handle(c); err != nil {
				c.fail(err)
			}
			return
		}
		if r.Method == http.MethodGet {
			c.fail(errNotFound())
			return
		}
		c.Header()["Allow"] = allowed
		c.fail(detailError(http.StatusMethodNotAllowed, "Method Not Allowed"))
	})
}

func errNotFound() error { return detailError(http.StatusNotFound, "Not Found") }

const (
	prefix     = "/v1/agl"
	healthPath = prefix + "/health"
	readyPath  = prefix + "/ready"
)

// routes lists every path with its methods.
func (s *Server) routes() map[string]methods {
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	metrics := methods{get: s.forward(promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))}
	unsupported := methods{post: s.unsupportedSignal}
	return map[string]methods{
		healthPath:              {get: s.health},
		readyPath:               {get: s.ready},
		prefix + "/statistics":  {get: s.statistics},
		prefix + "/events":      {get: s.events},
		prefix + "/resources":   {get: s.queryResources, post: s.addResources},
		prefix + "/rollouts":    {get: s.queryRollouts, post: s.startRollout},
		prefix + "/spans":       {get: s.querySpans, post: s.addSpan},
		prefix + "/spans/batch": {post: s.addSpans},
		prefix + "/spans/next":  {post: s.nextSequenceID},
		prefix + "/workers":     {get: s.queryWorkers},

		prefix + "/queues/rollouts/enqueue": {post: s.enqueue},
		prefix + "/queues/rollouts/dequeue": {post: s.dequeue},
		prefix + "/queues/rollouts/close":   {post: s.closeQueue},
		prefix + "/queues/rollouts/open":    {post: s.openQueue},
		prefix + "/waits/rollouts":          {post: s.waitForRollouts},
		prefix + "/spans/next/batch":        {post: s.nextSequenceIDs},

		prefix + "/rollouts/search":                             {post: s.searchRollouts},
		prefix + "/rollouts/{rollout_id}":                       {get: s.getRollout, post: s.updateRollout, del: s.deleteRollout},
		prefix + "/rollouts/{rollout_id}/cancel":                {post: s.cancelRollout},
		prefix + "/rollouts/{rollout_id}/attempts":              {get: s.queryAttempts, post: s.startAttempt},
		prefix + "/rollouts/{rollout_id}/attempts/search":       {post: s.searchAttempts},
		prefix + "/rollouts/{rollout_id}/attempts/latest":       {get: s.getLatestAttempt, post: s.updateAttempt},
		prefix + "/rollouts/{rollout_id}/attempts/{attempt_id}": {post: s.updateAttempt},

		prefix + "/resources/latest":         {get: s.getLatestResources},
		prefix + "/resources/{resources_id}": {get: s.getResources, post: s.updateResources},
		prefix + "/spans/search":             {post: s.searchSpans},
		prefix + "/workers/search":           {post: s.searchWorkers},
		prefix + "/workers/{worker_id}":      {get: s.getWorker, post: s.updateWorker},

		tracesPath:                 {post: s.traces},
		"/v1/metrics":              unsupported,
		"/v1/logs":                 unsupported,
		"/v1/development/profiles": unsupported,
		"/metrics":                 metrics,
		"/v1/prometheus":           metrics,
		"/v1/prometheus/{$}":       metrics,
		"/v1/":                     {},
		"/":                        {get: s.forward(s.config.UI), http.MethodHead: s.forward(s.config.UI)},
	}
}

// forward hands a call to a handler of another package.
func (s *Server) forward(h http.Handler) handler {
	return func(c *call) error {
		h.ServeHTTP(c, c.request)
		return nil
	}
}

func (s *Server) health(c *call) error {
	return c.send(http.StatusOK, append(c.out, `{"status":"ok"}`...))
}

func (s *Server) statistics(c *call) error {
	stats, err := s.store.Statistics(c.ctx)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, stats.AppendJSON(c.out))
}
