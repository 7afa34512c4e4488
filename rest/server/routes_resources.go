package server

import (
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// Placeholder of routes.
const resourcesID = "resources_id"

// resources serves the versioned bundles of resources.
type resources struct{ store agl.Store }

func (s resources) add(x *exchange) error {
	p := agl.AddResourcesParams{IdempotencyKey: x.idempotencyKey()}
	if err := wire.KeepLatest(&p.KeepLatest).Parse(x.request.URL.RawQuery, x.decoder); err != nil {
		return err
	}
	return answerTo(x, http.StatusCreated, x.decode(&p.Resources, bodyRequired), &p, s.store.AddResources)
}

func (s resources) update(x *exchange) error {
	p := agl.UpdateResourcesParams{ResourcesID: x.request.PathValue(resourcesID), IdempotencyKey: x.idempotencyKey()}
	if err := wire.KeepLatest(&p.KeepLatest).Parse(x.request.URL.RawQuery, x.decoder); err != nil {
		return err
	}
	return answerTo(x, http.StatusOK, x.decode(&p.Resources, bodyRequired), &p, s.store.UpdateResources)
}

func (s resources) get(x *exchange) error {
	p := agl.GetResourcesParams{ResourcesID: x.request.PathValue(resourcesID)}
	if err := wire.GetResources(&p).Parse(x.request.URL.RawQuery, x.decoder); err != nil {
		return err
	}
	found, err := s.store.GetResources(x.context(), p)
	return x.answerFound(&found, err)
}

func (s resources) latest(x *exchange) error {
	found, err := s.store.GetLatestResources(x.context())
	return x.answerFound(&found, err)
}

func (s resources) query(x *exchange) error {
	var p agl.QueryResourcesParams
	if err := x.query(wire.QueryResources(&p)); err != nil {
		return err
	}
	return answerList(x, &p.Paging, func() (agl.Page[agl.ResourcesUpdate], error) { return s.store.QueryResources(x.context(), p) },
		func(it *agl.ResourcesUpdate) string { return it.ResourcesID })
}
