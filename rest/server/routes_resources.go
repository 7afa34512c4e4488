package server

import (
	"hash/maphash"
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
	if err := x.decode(&p.Resources, bodyRequired); err != nil {
		return err
	}
	added, err := s.store.AddResources(x.context(), p)
	return x.answer(http.StatusCreated, &added, err)
}

func (s resources) update(x *exchange) error {
	p := agl.UpdateResourcesParams{ResourcesID: x.request.PathValue(resourcesID), IdempotencyKey: x.idempotencyKey()}
	if err := wire.KeepLatest(&p.KeepLatest).Parse(x.request.URL.RawQuery, x.decoder); err != nil {
		return err
	}
	if err := x.decode(&p.Resources, bodyRequired); err != nil {
		return err
	}
	updated, err := s.store.UpdateResources(x.context(), p)
	return x.answer(http.StatusOK, &updated, err)
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
	return (&listing[agl.ResourcesUpdate]{
		paging: &p.Paging,
		read:   func() (agl.Page[agl.ResourcesUpdate], error) { return s.store.QueryResources(x.context(), p) },
		one:    appendTo[agl.ResourcesUpdate],
		key:    func(h *maphash.Hash, it *agl.ResourcesUpdate) { _, _ = h.WriteString(it.ResourcesID) },
	}).answer(x)
}
