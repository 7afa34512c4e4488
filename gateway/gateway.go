package gateway

import (
	"context"
	"net/http"
	"sync"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/httpserver"
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
	rates    access.Rates  // of keys
	open     *access.Open  // the model calls of each caller
	draining chan struct{} // closed by Drain
	drain    sync.Once

	background sync.WaitGroup
	stop       context.CancelFunc
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

// handler answers a request, or returns the error to be answered.
type handler func(w http.ResponseWriter, r *http.Request) error

// methods are what a path has, by method.
type methods map[string]endpoint

// endpoint is a handler and who may use it. Without a scope nobody may.
type endpoint struct {
	scope  access.Scope
	handle handler
}
