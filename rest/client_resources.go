package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/agl-go/agl"
)

// AddResources implements agl.Store.
func (c *Client) AddResources(ctx context.Context, p agl.AddResourcesParams) (agl.ResourcesUpdate, error) {
	x := exchange{op: "AddResources", path: "/resources", body: p.Resources.AppendJSON(nil), key: newKey(p.IdempotencyKey)}
	return post[agl.ResourcesUpdate](ctx, c, x)
}

// UpdateResources implements agl.Store.
func (c *Client) UpdateResources(ctx context.Context, p agl.UpdateResourcesParams) (agl.ResourcesUpdate, error) {
	path := "/resources/" + pathSegment(p.ResourcesID)
	x := exchange{op: "UpdateResources", path: path, body: p.Resources.AppendJSON(nil), key: newKey(p.IdempotencyKey)}
	return post[agl.ResourcesUpdate](ctx, c, x)
}

// GetResources implements agl.Store.
func (c *Client) GetResources(ctx context.Context, p agl.GetResourcesParams) (agl.ResourcesUpdate, error) {
	return get[agl.ResourcesUpdate](ctx, c, "GetResources", "/resources/"+pathSegment(p.ResourcesID), fmt.Sprintf("Resources %s not found", p.ResourcesID))
}

// GetLatestResources implements agl.Store.
func (c *Client) GetLatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	return get[agl.ResourcesUpdate](ctx, c, "GetLatestResources", "/resources/latest", "there are no resources")
}

// QueryResources implements agl.Store.
func (c *Client) QueryResources(ctx context.Context, p agl.QueryResourcesParams) (agl.Page[agl.ResourcesUpdate], error) {
	query := url.Values{}
	set := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	set("resources_id", p.ResourcesID)
	set("resources_id_contains", p.ResourcesIDContains)
	set("sort_by", p.SortBy)
	set("sort_order", string(p.Order))
	if p.Limit != 0 {
		set("limit", strconv.Itoa(p.Limit))
	}
	if p.Offset != 0 {
		set("offset", strconv.Itoa(p.Offset))
	}
	var result page[agl.ResourcesUpdate, *agl.ResourcesUpdate]
	x := exchange{op: "QueryResources", method: http.MethodGet, path: "/resources?" + query.Encode()}
	err := c.do(ctx, x, decodeAnswer(&result))
	return result.Page, err
}

// UpdateWorker implements agl.Store.
func (c *Client) UpdateWorker(ctx context.Context, p agl.UpdateWorkerParams) (agl.Worker, error) {
	body := newObject()
	given(&body, "heartbeat_stats", p.HeartbeatStats)
	return post[agl.Worker](ctx, c, exchange{op: "UpdateWorker", path: "/workers/" + pathSegment(p.WorkerID), body: body.End()})
}

// GetWorker implements agl.Store.
func (c *Client) GetWorker(ctx context.Context, p agl.GetWorkerParams) (agl.Worker, error) {
	return get[agl.Worker](ctx, c, "GetWorker", "/workers/"+pathSegment(p.WorkerID), fmt.Sprintf("Worker %s not found", p.WorkerID))
}

// QueryWorkers implements agl.Store.
func (c *Client) QueryWorkers(ctx context.Context, p agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	body := newObject()
	texts(&body, "status_in", p.StatusIn)
	body.NonEmpty("worker_id_contains", p.WorkerIDContains)
	body.NonEmpty("filter_logic", string(p.Logic))
	paging(&body, p.Paging)
	return search[agl.Worker](ctx, c, "QueryWorkers", "/workers/search", body.End())
}

// Statistics implements agl.Store.
func (c *Client) Statistics(ctx context.Context) (agl.Statistics, error) {
	var s agl.Statistics
	err := c.do(ctx, exchange{op: "Statistics", method: http.MethodGet, path: "/statistics"}, decodeAnswer(&s))
	return s, err
}
