package gateway

import (
	"context"
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/rawjson"
)

// Gateway serves the API, an http.Handler. Create it with [New], start it with
// [Gateway.Start] and stop it with [Gateway.Close].
type Gateway struct {
	cfg      Config
	guard    *httpserver.Guard
	mux      *http.ServeMux
	settings settings
	terminal terminal
	calls    calls
	draining chan struct{} // closed by Drain
	drain    sync.Once

	background sync.WaitGroup
	stop       context.CancelFunc
}

// New returns a gateway. It refuses an invalid configuration with CodeInvalid, and
// starts nothing.
func New(config Config) (*Gateway, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	guard, err := httpserver.NewGuard(config.Origins, config.AllowedHosts)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "gateway: Origins: %w", err)
	}
	g := &Gateway{cfg: config, guard: guard, mux: http.NewServeMux(), settings: settings{store: config.Store.(agl.DocumentStore)}, draining: make(chan struct{}), stop: func() {}}
	g.terminal.init(config.Store)
	g.calls.init()
	const get, post, patch, del = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
	for path, m := range map[string]map[string]handler{
		"/healthz":                                    {get: g.health},
		"/api/rollouts":                               {get: g.listRollouts, post: g.createRollouts},
		"/api/rollouts/terminal":                      {get: g.listTerminal},
		"/api/rollouts/status":                        {post: g.rolloutStatuses},
		"/api/rollouts/{id}":                          {get: g.getRollout, patch: g.patchRollout, del: g.deleteRollout},
		"/api/rollouts/{id}/key":                      {get: g.rolloutKey},
		"/api/rollouts/{id}/cancel":                   {post: g.cancelRollout},
		"/api/rollouts/{id}/events":                   {get: g.queryEvents},
		"/api/rollouts/{id}/attempt/{attempt}/events": {post: g.postEvent},
		"/api/models":                                 {post: g.registerModels, del: g.deleteModels},
		"/proxy/pause":                                {post: g.pause},
		"/proxy/resume":                               {post: g.resume},
		"/proxy/state":                                {get: g.proxyState},
		"/proxy/rollout/{id}/attempt/{attempt}/mode/{mode}/openai/v1/{path...}": {post: g.forward(openaiAPI)},
	} {
		g.route(path, m)
	}
	if g.cfg.Translate {
		g.route("/proxy/rollout/{id}/attempt/{attempt}/mode/{mode}/anthropic/v1/{path...}", map[string]handler{post: g.forward(anthropicAPI)})
	}
	g.mux.HandleFunc("/", notFound)
	return g, nil
}

// Owns reports whether a path belongs to this API.
func Owns(path string) bool {
	return path == "/healthz" || path == "/api" || path == "/proxy" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/proxy/")
}

// Start reads what an earlier process has left, and begins to follow the store. It runs
// until [Gateway.Close] or until ctx ends.
func (g *Gateway) Start(ctx context.Context) error {
	if err := g.settings.read(ctx); err != nil {
		return err
	}
	following, stop := context.WithCancel(ctx)
	g.stop = stop
	if err := g.terminal.start(following, &g.background, g.cfg.Logger); err != nil {
		stop()
		return err
	}
	return nil
}

// Drain ends requests that wait, and makes all later ones fail with 503 and
// Retry-After, which the clients of this API repeat. Call it before http.Server.Shutdown.
func (g *Gateway) Drain() { g.drain.Do(func() { close(g.draining) }) }

// Close ends what Start has begun. Requests must have been answered before.
func (g *Gateway) Close() {
	g.stop()
	g.background.Wait()
}

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-g.draining:
		w.Header()["Retry-After"] = []string{"1"}
		w.Header()["Connection"] = []string{"close"}
		writeError(w, errStatus(http.StatusServiceUnavailable, "The server is shutting down"))
		return
	default:
	}
	if err := g.guard.Check(r); err != nil {
		writeError(w, errStatus(http.StatusForbidden, err.Error()))
		return
	}
	if r.URL.Path != "/healthz" && !g.authorized(r) {
		writeError(w, errStatus(http.StatusUnauthorized, "Invalid or missing API key"))
		return
	}
	g.mux.ServeHTTP(w, r)
}

// handler answers a request, or returns the error to be answered.
type handler func(w http.ResponseWriter, r *http.Request) error

func (g *Gateway) route(path string, m map[string]handler) {
	allowed := strings.Join(slices.Sorted(maps.Keys(m)), ", ")
	g.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		handle := m[r.Method]
		if handle == nil {
			w.Header()["Allow"] = []string{allowed}
			writeError(w, errStatus(http.StatusMethodNotAllowed, "Method Not Allowed"))
			return
		}
		if err := handle(w, r); err != nil {
			// The context also ends when the body does not arrive in time, which is answered.
			_, answer := errors.AsType[*statusError](err)
			if !answer && r.Context().Err() != nil {
				return
			}
			if !answer && errorStatus(err) >= http.StatusInternalServerError {
				g.cfg.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
			}
			writeError(w, err)
		}
	})
}

func notFound(w http.ResponseWriter, r *http.Request) {
	if path, cut := strings.CutSuffix(r.URL.Path, "/"); cut && path != "" && !strings.HasSuffix(path, "/") {
		to := url.URL{Path: path, RawQuery: r.URL.RawQuery}
		w.Header()["Location"] = []string{to.String()}
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	writeError(w, errStatus(http.StatusNotFound, "Not Found"))
}

func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
	return nil
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header()["Content-Type"] = []string{"application/json"}
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // it is JSON, and says so; the write fails only if the client has left
}

// statusError is an error with its HTTP status and its document.
type statusError struct {
	status int
	body   []byte
	text   string
}

func (e *statusError) Error() string { return e.text }

// errStatus is an error whose document is {"detail": text}.
func errStatus(status int, text string) error {
	o := rawjson.NewObject(nil)
	o.String("detail", text)
	return &statusError{status, o.End(), text}
}

// errProblems is the error for a request that is not valid.
func (c *checker) errProblems() error {
	if len(c.problems) == 0 {
		return nil
	}
	return &statusError{http.StatusUnprocessableEntity, c.detail(), "the request is not valid"}
}

func errorStatus(err error) int {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status
	}
	switch agl.ErrorCode(err) {
	case agl.CodeInvalid:
		return http.StatusUnprocessableEntity
	case agl.CodeNotFound:
		return http.StatusNotFound
	case agl.CodeUnavailable, agl.CodeExhausted:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

func writeError(w http.ResponseWriter, err error) {
	if e, ok := errors.AsType[*statusError](err); ok {
		writeJSON(w, e.status, e.body)
		return
	}
	status := errorStatus(err)
	if status == http.StatusServiceUnavailable {
		w.Header()["Retry-After"] = []string{"1"}
	}
	o := rawjson.NewObject(nil)
	o.String("detail", err.Error())
	writeJSON(w, status, o.End())
}

// body reads a request's JSON body. A body of another type counts as a string, as in the
// original server.
func (g *Gateway) body(w http.ResponseWriter, r *http.Request) (jsontext.Value, error) {
	raw, err := g.readBody(w, r)
	if err != nil {
		return nil, err
	}
	var c checker
	if len(raw) == 0 {
		c.refuse("missing", "Field required", nil, []any{"body"})
		return nil, c.errProblems()
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if isJSON := kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"); !isJSON {
		return queryText(string(raw)), nil
	}
	doc, ok := document(raw)
	if !ok {
		c.refuse("json_invalid", "JSON decode error", jsontext.Value("{}"), []any{"body", 0})
		c.problems[0].context = jsontext.Value(`{"error":"not a JSON document in UTF-8"}`)
		return nil, c.errProblems()
	}
	return doc, nil
}

func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	raw, err := httpserver.ReadBody(w, r, g.cfg.MaxBodyBytes)
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return nil, errStatus(http.StatusRequestEntityTooLarge, "The body is too long")
	}
	if err != nil {
		return nil, errStatus(httpserver.BodyStatus(err))
	}
	return raw, nil
}
