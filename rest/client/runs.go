package client

import (
	"cmp"
	"context"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

var _ agl.Runs = (*Client)(nil)

// StartRun implements agl.Runs.
func (c *Client) StartRun(ctx context.Context, p agl.StartRunParams) (agl.Run, error) {
	p.RunID = cmp.Or(p.RunID, agl.NewRunID()) // a retry starts the same run
	return post[agl.Run](ctx, c, "StartRun", wire.Runs, "", wire.StartRun(&p))
}

// UpdateRun implements agl.Runs.
func (c *Client) UpdateRun(ctx context.Context, p agl.UpdateRunParams) (agl.Run, error) {
	return post[agl.Run](ctx, c, "UpdateRun", wire.Run(wire.Segment(p.RunID)), "", wire.UpdateRun(&p))
}

// GetRun implements agl.Runs.
func (c *Client) GetRun(ctx context.Context, runID string) (agl.Run, error) {
	return call[agl.Run](ctx, c, operation{name: "GetRun", method: http.MethodGet, path: wire.Run(wire.Segment(runID))})
}

// QueryRuns implements agl.Runs.
func (c *Client) QueryRuns(ctx context.Context, p agl.QueryRunsParams) (agl.Page[agl.Run], error) {
	return call[agl.Page[agl.Run]](ctx, c, operation{name: "QueryRuns", method: http.MethodGet, path: wire.Runs + "?" + wire.QueryRuns(&p).Encode()})
}

// DeleteRun implements agl.Runs. A retry that finds no such run has succeeded: only the first answer was lost.
func (c *Client) DeleteRun(ctx context.Context, runID string) error {
	return c.do(ctx, operation{name: "DeleteRun", method: http.MethodDelete, path: wire.Run(wire.Segment(runID)), gone: true}, nil)
}

// AddRunMetrics implements agl.Runs.
func (c *Client) AddRunMetrics(ctx context.Context, p agl.AddRunMetricsParams) (agl.Run, error) {
	return post[agl.Run](ctx, c, "AddRunMetrics", wire.RunMetrics(wire.Segment(p.RunID)), "", (*wire.AddRunMetrics)(&p.Metrics))
}

// QueryRunMetrics implements agl.Runs.
func (c *Client) QueryRunMetrics(ctx context.Context, p agl.QueryRunMetricsParams) (agl.Page[agl.RunMetrics], error) {
	path := wire.RunMetrics(wire.Segment(p.RunID)) + "?" + wire.QueryRunMetrics(&p).Encode()
	return call[agl.Page[agl.RunMetrics]](ctx, c, operation{name: "QueryRunMetrics", method: http.MethodGet, path: path})
}
