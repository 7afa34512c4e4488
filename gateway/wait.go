package gateway

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
)

// maxWait bounds how long a request may wait.
const maxWait = time.Minute

// waiting calls wait with a context that ends after the seconds that the query parameter wait asks for, or when the
// server is about to stop. Without the parameter it does nothing.
func (g *Gateway) waiting(r *http.Request, wait func(ctx context.Context) error) error {
	given := r.URL.Query().Get("wait")
	if given == "" {
		return nil
	}
	seconds, err := strconv.ParseFloat(given, 64)
	if err != nil || !(seconds >= 0 && seconds <= maxWait.Seconds()) {
		var c checker
		c.refuse("value_error", "Input should be a number of seconds between 0 and 60", queryText(given), []any{"query", "wait"})
		return c.errProblems()
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	ctx, stop := background.Until(ctx, g.draining)
	defer stop()
	if err := wait(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// waitForEnd waits until a rollout has ended.
func (g *Gateway) waitForEnd(r *http.Request, of *rollout) error {
	return g.waiting(r, func(ctx context.Context) error {
		_, err := g.cfg.Store.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{of.storeID()}})
		return err
	})
}
