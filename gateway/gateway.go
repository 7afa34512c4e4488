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
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/rawjson"
)

// Gateway serves the API, an http.Handler. Create it with [New], start it with
// [Gateway.Start] and stop it with [Gateway.Close].
type Gateway struct {
	cfg      Config
	guard    *httpserver.Guard
	mux      *http.ServeMux
	routes   map[string]methods
	settings settings
	terminal terminal
	calls    calls
	meter    *access.Meter // of model calls; nil without Budgets
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
	g := &Gateway{cfg: config, guard: guard, mux: http.NewServeMux(), routes: map[string]methods{}, settings: settings{store: config.Store.(agl.DocumentStore)}, draining: make(chan struct{}), stop: func() {}}
	g.terminal.init(config.Store)
	g.calls.init()
	if config.Budgets != nil {
		g.meter = access.NewMeter(config.Budgets)
	}
	const get, post, patch, del = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
	const read, runs, train, sends = access.Readers, access.Runner | access.Train, access.Train, access.Senders
	for path, m := range map[string]methods{
		"/healthz":                                    {get: {access.Public, g.health}},
		"/api/rollouts":                               {get: {read, g.listRollouts}, post: {train, g.createRollouts}},
		"/api/rollouts/terminal":                      {get: {read, g.listTerminal}},
		"/api/rollouts/status":                        {post: {read, g.rolloutStatuses}},
		"/api/rollouts/{id}":                          {get: {read | access.Agent, g.getRollout}, patch: {runs, g.patchRollout}, del: {train, g.deleteRollout}},
		"/api/rollouts/{id}/key":                      {get: {runs, g.rolloutKey}},
		"/api/rollouts/{id}/cancel":                   {post: {train, g.cancelRollout}},
		"/api/rollouts/{id}/events":                   {get: {read, g.queryEvents}},
		"/api/rollouts/{id}/attempt/{attempt}/events": {post: {sends, g.postEvent}},
		"/api/models":                                 {post: {train, g.registerModels}, del: {train, g.deleteModels}},
		"/proxy/pause":                                {post: {train, g.pause}},
		"/proxy/resume":                               {post: {train, g.resume}},
		"/proxy/state":                                {get: {read, g.proxyState}},
		"/proxy/rollout/{id}/attempt/{attempt}/mode/{mode}/openai/v1/{path...}": {post: {access.Callers, g.forward(openaiAPI)}},
	} {
		g.route(path, m)
	}
	if g.cfg.Translate {
		g.route("/proxy/rollout/{id}/attempt/{attempt}/mode/{mode}/anthropic/v1/{path...}", methods{post: {access.Callers, g.forward(anthropicAPI)}})
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
	g.stop = func() {
		stop()
		g.closeMeter(ctx)
	}
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
	if r.URL.Path != "/healthz" {
		who, err := g.identify(r)
		if err != nil {
			writeError(w, err)
			return
		}
		by := &caller{Caller: who}
		if who.Limited() {
			by.lease = g.cfg.Budgets.Lease(&who)
			counted := &statusWriter{ResponseWriter: w}
			w = counted
			defer func() { g.settle(r, by, counted.status) }()
		}
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, by))
	}
	g.mux.ServeHTTP(w, r)
}

// handler answers a request, or returns the error to be answered.
type handler func(w http.ResponseWriter, r *http.Request) error

// methods are what a path has, by method.
type methods map[string]endpoint

// endpoint is a handler and who may use it. Without a scope nobody may.
type endpoint struct {
	scope  access.Scope
	handle handler
}

func (g *Gateway) route(path string, m methods) {
	g.routes[path] = m
	allowed := strings.Join(slices.Sorted(maps.Keys(m)), ", ")
	g.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		to, found := m[r.Method]
		if !found {
			w.Header()["Allow"] = []string{allowed}
			writeError(w, errStatus(http.StatusMethodNotAllowed, "Method Not Allowed"))
			return
		}
		if err := allow(r, to.scope); err != nil {
			writeError(w, err)
			return
		}
		if g.cfg.Audit != nil && to.scope&^(access.Train|access.Admin) == 0 {
			audited := &statusWriter{ResponseWriter: w}
			w = audited
			defer func() { g.audit(r, audited.status) }()
		}
		if err := to.handle(w, r); err != nil {
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

// statusWriter knows the status of an answer.
type statusWriter struct {
	http.ResponseWriter

	status int // 0 until the header is written
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// audit keeps an act that has succeeded.
func (g *Gateway) audit(r *http.Request, status int) {
	if status == 0 || status >= http.StatusBadRequest {
		return
	}
	caller := callerOf(r)
	act := access.Act{
		Time: agl.TimestampOf(time.Now()), By: caller.By(), KeyID: caller.KeyID, From: r.RemoteAddr, Method: r.Method, Path: r.URL.Path, Status: status,
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), access.RecordTimeout)
	defer cancel()
	if err := g.cfg.Audit.Record(ctx, &act); err != nil {
		g.cfg.Logger.Error("an act was not recorded", "by", act.By, "from", act.From, "method", act.Method, "path", act.Path, "error", err)
	}
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
	_, _ = w.Write(body) //nolint:gosec,nolintlint // it is JSON, and says so; the write fails only if the client has left
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
	return raw, callerOf(r).reserve(r.Context(), access.Amounts{Bytes: int64(len(raw))})
}
