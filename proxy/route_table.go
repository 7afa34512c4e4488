package proxy

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy/admin"
	"github.com/agl-go/agl/proxy/exchange"
)

// endpoint serves the requests of a route. It has serve or, for requests about sessions, about.
type endpoint struct {
	scope access.Scope // who may make them; nobody without one
	serve func(w http.ResponseWriter, r *http.Request, rt route)
	about sessionRoute
}

const (
	ofAttempt = "/rollout/{id}/attempt/{id}" // also a prefix of all paths that call models
	ofSession = "/agl/sessions/{id}/"
	// pathEvent takes events of the session that the headers or the key of a request name.
	pathEvent = "/agl/event"
)

// table returns all routes but those of package admin, by method and path without /v1.
func (p *Proxy) table() map[string]endpoint {
	const starts = access.Live | access.Runner | access.Train
	table := map[string]endpoint{}
	for _, path := range p.cfg.ForwardPaths {
		table["POST "+path] = endpoint{access.Callers, p.serveCall, nil}
	}
	maps.Copy(table, map[string]endpoint{
		"POST /chat/completions":       {access.Callers, p.serveCall, nil},
		"POST /completions":            {access.Callers, p.serveCall, nil},
		"POST /responses":              {access.Callers, p.serveCall, nil},
		"POST /messages":               {access.Callers, p.serveCall, nil},
		"POST " + exchange.CountTokens: {access.Callers, p.serveCall, nil},
		"POST /embeddings":             {access.Callers, p.serveCall, nil},
		"GET /models":                  {access.Callers | access.Readers, p.serveModels, nil},
		"GET /models/{name}":           {access.Callers | access.Readers, p.serveModels, nil},
		"GET /health":                  {access.Public, p.serveHealth, nil},
		"HEAD /health":                 {access.Public, p.serveHealth, nil},
		"POST " + ofAttempt + "/flush": {access.Callers, p.serveFlush, nil},
		"POST " + ofAttempt + "/emit":  {access.Senders, p.serveEmit, nil},
		"POST /agl/sessions":           {starts, nil, (*Proxy).startSession},
		"POST " + ofSession + "reward": {access.Senders, nil, (*Proxy).rewardSession},
		"POST " + ofSession + "event":  {access.Senders, nil, (*Proxy).reportEvent},
		"POST " + ofSession + "end":    {access.Callers, nil, (*Proxy).endSession},
		"POST " + pathEvent:            {access.Senders, nil, (*Proxy).reportEvent},
		"POST /rl/start_session":       {starts, nil, (*Proxy).rlStart},
		"POST /rl/set_reward":          {access.Agent, nil, (*Proxy).rlReward},
		"POST /rl/end_session":         {access.Agent, nil, (*Proxy).rlEnd},
	})
	return table
}

// Routes returns all routes, each as a method and a path without /v1.
func (p *Proxy) Routes() []string {
	return slices.Sorted(slices.Values(append(admin.Routes(), slices.Collect(maps.Keys(p.routes))...)))
}

// endpoint returns the endpoint of a request, or the zero endpoint for an unknown path. Only paths that
// are spelled exactly as listed are served: a backend may serve more than an agent should reach, and may
// resolve an escaped or relative path to another one.
func (p *Proxy) endpoint(r *http.Request, rt route) endpoint {
	path := rt.path
	switch id, what := sessionPath(path); {
	case slices.Contains(p.cfg.ForwardPaths, path):
	case strings.HasPrefix(path, "/models/"):
		path = "/models/{name}"
	case rt.rolloutID != "" && (path == "/flush" || path == "/emit"):
		path = ofAttempt + path
	case id != "":
		path = ofSession + what
	}
	return p.routes[r.Method+" "+path]
}

func (p *Proxy) serveHealth(w http.ResponseWriter, _ *http.Request, _ route) {
	p.answer(w, http.StatusOK, []byte(`{"status":"ok"}`))
}

func (p *Proxy) serveFlush(w http.ResponseWriter, r *http.Request, rt route) {
	p.admin.ServeFlush(w, r, rt.rolloutID, rt.attemptID)
}
