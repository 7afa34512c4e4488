package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// AddResources implements agl.Store.
func (c *Client) AddResources(ctx context.Context, p agl.AddResourcesParams) (agl.ResourcesUpdate, error) {
	if err := p.Resources.Validate(); err != nil {
		return agl.ResourcesUpdate{}, err
	}
	return post[agl.ResourcesUpdate](ctx, c, "AddResources", withQuery(wire.Resources, wire.KeepLatest(&p.KeepLatest)), keyOr(p.IdempotencyKey), p.Resources)
}

// UpdateResources implements agl.Store.
func (c *Client) UpdateResources(ctx context.Context, p agl.UpdateResourcesParams) (agl.ResourcesUpdate, error) {
	if err := p.Resources.Validate(); err != nil {
		return agl.ResourcesUpdate{}, err
	}
	path := withQuery(wire.ResourcesOf(wire.Segment(p.ResourcesID)), wire.KeepLatest(&p.KeepLatest))
	return post[agl.ResourcesUpdate](ctx, c, "UpdateResources", path, keyOr(p.IdempotencyKey), p.Resources)
}

// GetResources implements agl.Store.
func (c *Client) GetResources(ctx context.Context, p agl.GetResourcesParams) (agl.ResourcesUpdate, error) {
	if p.ResourcesID == "" { // the server has no such path
		return agl.ResourcesUpdate{}, agl.Errorf(agl.CodeNotFound, "GetResources: resources_id: empty, must be the id of resources; GetLatestResources returns the latest")
	}
	path := withQuery(wire.ResourcesOf(wire.Segment(p.ResourcesID)), wire.GetResources(&p))
	return get[agl.ResourcesUpdate](ctx, c, "GetResources", path, missingResources(&p))
}

// missingResources returns the error message for an answer of null.
func missingResources(p *agl.GetResourcesParams) string {
	if p.Version.Valid {
		return fmt.Sprintf("Resources %s have no version %d", p.ResourcesID, p.Version.V)
	}
	return fmt.Sprintf("Resources %s not found", p.ResourcesID)
}

// withQuery adds the parameters that are set to a path.
func withQuery(path string, q wire.Query) string {
	if query := q.Encode(); query != "" {
		return path + "?" + query
	}
	return path
}

// GetLatestResources implements agl.Store.
func (c *Client) GetLatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	return get[agl.ResourcesUpdate](ctx, c, "GetLatestResources", wire.LatestResources, "there are no resources")
}

// QueryResources implements agl.Store.
func (c *Client) QueryResources(ctx context.Context, p agl.QueryResourcesParams) (agl.Page[agl.ResourcesUpdate], error) {
	op := operation{name: "QueryResources", method: http.MethodGet, path: wire.Resources + "?" + wire.QueryResources(&p).Encode()}
	return call[agl.Page[agl.ResourcesUpdate]](ctx, c, op)
}
