package client

import (
	"context"
	"fmt"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// UpdateWorker implements agl.Store.
func (c *Client) UpdateWorker(ctx context.Context, p agl.UpdateWorkerParams) (agl.Worker, error) {
	return post[agl.Worker](ctx, c, "UpdateWorker", wire.Worker(wire.Segment(p.WorkerID)), "", wire.UpdateWorker(&p))
}

// GetWorker implements agl.Store.
func (c *Client) GetWorker(ctx context.Context, p agl.GetWorkerParams) (agl.Worker, error) {
	return get[agl.Worker](ctx, c, "GetWorker", wire.Worker(wire.Segment(p.WorkerID)), fmt.Sprintf("Worker %s not found", p.WorkerID))
}

// QueryWorkers implements agl.Store.
func (c *Client) QueryWorkers(ctx context.Context, p agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	return search[agl.Worker](ctx, c, "QueryWorkers", wire.SearchWorkers, wire.QueryWorkers(&p))
}
