package gateway

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/httpserver"
)

// Gateway is an http.Handler that serves the API. Create it with [New], start it with [Gateway.Start] and stop it
// with [Gateway.Close].
type Gateway struct {
	cfg      Config
	guard    *httpserver.Guard
	mux      *http.ServeMux
	routes   map[string]methods
	settings settings
	terminal terminal
	running  atomic.Int64  // model calls
	meter    *access.Meter // of model calls; nil without Budgets
	rates    access.Rates  // of keys
	open     *access.Open  // counts the running model calls of each caller
	draining chan struct{} // closed by Drain
	drain    sync.Once
	gaps     sync.Once // logs the first backend that leaves token ids out of a stream

	background sync.WaitGroup
	stop       context.CancelFunc
}

// Start reads the state that an earlier process stored, and starts to follow the store. It runs until [Gateway.Close]
// or until ctx ends.
func (g *Gateway) Start(ctx context.Context) error {
	if _, err := g.settings.get(ctx, 0); err != nil {
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

// Drain ends waiting requests, and makes all later ones fail with 503 and Retry-After; clients of this API send those
// again. Call it before http.Server.Shutdown.
func (g *Gateway) Drain() { g.drain.Do(func() { close(g.draining) }) }

// Close stops what Start has started. All requests must have been answered before.
func (g *Gateway) Close() {
	g.stop()
	g.background.Wait()
}

// handler answers a request, or returns the error to answer with.
type handler func(w http.ResponseWriter, r *http.Request) error

// methods are the endpoints of a path, by HTTP method.
type methods map[string]endpoint

// endpoint is a handler and the scopes that may use it. Without a scope nobody may.
type endpoint struct {
	scope  access.Scope
	handle handler
}
