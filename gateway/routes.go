package gateway

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/httpserver"
)

// New returns a gateway; CodeInvalid. It starts nothing.
func New(config Config) (*Gateway, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	guard, err := httpserver.NewGuard(config.Origins, config.AllowedHosts)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "gateway: Origins: %w", err)
	}
	g := &Gateway{
		cfg: config, guard: guard, mux: http.NewServeMux(), routes: map[string]methods{}, settings: settings{store: config.Store.(agl.DocumentStore)},
		terminal: terminal{store: config.Store, known: map[string]struct{}{}, changed: make(chan struct{})},
		draining: make(chan struct{}), stop: func() {}, open: access.NewOpen(access.MaxOpen),
	}
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
		by := &caller{Caller: who, gone: g.gone(r)}
		if who.Limited() {
			by.lease = g.cfg.Budgets.Lease(&who)
			counted := &httpserver.StatusWriter{ResponseWriter: w}
			w = counted
			defer func() { g.settle(r, by, counted.Status) }()
		}
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, by))
	}
	g.mux.ServeHTTP(w, r)
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
		if err := callerOf(r).Allow(to.scope); err != nil {
			writeError(w, errStatus(http.StatusForbidden, err.Error()))
			return
		}
		if g.cfg.Audit != nil && to.scope&^(access.Train|access.Admin) == 0 {
			audited := &httpserver.StatusWriter{ResponseWriter: w}
			w = audited
			defer func() {
				if s := audited.Status; s != 0 && s < http.StatusBadRequest { // it succeeded
					g.cfg.Audit.RecordCall(g.cfg.Logger, r, &callerOf(r).Caller, s)
				}
			}()
		}
		if err := to.handle(w, r); err != nil {
			// The context also ends when the body does not arrive in time; that is answered.
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

func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
	return nil
}
