package rest

import (
	"net/http"

	"github.com/agl-go/agl"
)

func (s *Server) addResources(c *call) error {
	var resources agl.Resources
	if err := c.decode(&resources, true); err != nil {
		return err
	}
	added, err := s.store.AddResources(c.ctx, agl.AddResourcesParams{Resources: resources, IdempotencyKey: c.idempotencyKey()})
	if err != nil {
		return err
	}
	return c.send(http.StatusCreated, added.AppendJSON(c.out))
}

func (s *Server) updateResources(c *call) error {
	var resources agl.Resources
	if err := c.decode(&resources, true); err != nil {
		return err
	}
	updated, err := s.store.UpdateResources(c.ctx, agl.UpdateResourcesParams{
		ResourcesID: c.resourcesID(), Resources: resources, IdempotencyKey: c.idempotencyKey(),
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, updated.AppendJSON(c.out))
}

func (c *call) resourcesID() string { return c.request.PathValue("resources_id") }

func (s *Server) getResources(c *call) error {
	found, err := s.store.GetResources(c.ctx, agl.GetResourcesParams{ResourcesID: c.resourcesID()})
	return sendFound(c, &found, err)
}

func (s *Server) getLatestResources(c *call) error {
	found, err := s.store.GetLatestResources(c.ctx)
	return sendFound(c, &found, err)
}

func (s *Server) queryResources(c *call) error {
	var p agl.QueryResourcesParams
	f := newFilters("", map[string]*string{"resources_id": &p.ResourcesID, "resources_id_contains": &p.ResourcesIDContains})
	if err := c.query(f, false); err != nil {
		return err
	}
	p.Paging = f.Paging
	page, err := s.store.QueryResources(c.ctx, p)
	if err != nil {
		return err
	}
	return sendPage(c, page, appendItem)
}
