package store

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// resourcesCommand stores a bundle: under a new id, or under the given one with
// upsert.
type resourcesCommand struct {
	header

	key       *idempotencyKey
	id        string
	upsert    bool
	resources agl.Resources
	result    *agl.ResourcesUpdate
	replay    *driver.IdempotencyRecord
}

func (c *resourcesCommand) load(want *driver.LoadParams) {
	c.key.load(want)
	want.Resources = append(want.Resources, c.id)
}

func (c *resourcesCommand) run(w *unitOfWork) (err error) {
	if c.replay, err = c.key.replay(w); err != nil || c.replay != nil {
		return err
	}
	for !c.upsert && w.resources[c.id] != nil {
		c.id = newID("rs-", resourcesIDBytes)
	}
	u := agl.ResourcesUpdate{ResourcesID: c.id, CreateTime: w.now, UpdateTime: w.now, Version: 1, Resources: c.resources}
	if old := w.resources[c.id]; old != nil {
		u.CreateTime, u.Version = old.CreateTime, old.Version+1
	}
	c.result = &u
	w.resources[c.id] = &u
	w.latestResources = agl.Some(c.id)
	w.changes.Resources = append(w.changes.Resources, &u)
	w.changes.Events = append(w.changes.Events, agl.Event{Kind: agl.EventResources, ResourcesID: c.id})
	c.key.record(w, driver.IdempotencyRecord{ResourcesID: c.id})
	return nil
}

func (s *Store) putResources(ctx context.Context, c *resourcesCommand) (agl.ResourcesUpdate, error) {
	for _, n := range c.resources {
		if n.Resource == nil {
			return agl.ResourcesUpdate{}, agl.Errorf(agl.CodeInvalid, "resources.%s: got nothing, must be a resource", n.Name)
		}
	}
	if err := checkResourcesUTF8(c.resources); err != nil {
		return agl.ResourcesUpdate{}, err
	}
	if err := s.submit(ctx, c); err != nil {
		return agl.ResourcesUpdate{}, err
	}
	if c.replay != nil {
		return s.driver.Resources(ctx, c.replay.ResourcesID)
	}
	return *c.result, nil
}

// AddResources implements agl.Store.
func (s *Store) AddResources(ctx context.Context, p agl.AddResourcesParams) (agl.ResourcesUpdate, error) {
	return do(ctx, s, "AddResources", func() (agl.ResourcesUpdate, error) {
		if err := checkIDs(givenID{"idempotency_key", p.IdempotencyKey}); err != nil {
			return agl.ResourcesUpdate{}, err
		}
		key := newKey("add_resources", p.IdempotencyKey, nil, p.Resources.AppendJSON)
		return s.putResources(ctx, &resourcesCommand{key: key, id: newID("rs-", resourcesIDBytes), resources: p.Resources})
	})
}

// UpdateResources implements agl.Store.
func (s *Store) UpdateResources(ctx context.Context, p agl.UpdateResourcesParams) (agl.ResourcesUpdate, error) {
	return do(ctx, s, "UpdateResources", func() (agl.ResourcesUpdate, error) {
		if err := checkIDs(givenID{"resources_id", p.ResourcesID}, givenID{"idempotency_key", p.IdempotencyKey}); err != nil {
			return agl.ResourcesUpdate{}, err
		}
		key := newKey("update_resources", p.IdempotencyKey, []string{p.ResourcesID}, p.Resources.AppendJSON)
		return s.putResources(ctx, &resourcesCommand{key: key, id: p.ResourcesID, upsert: true, resources: p.Resources})
	})
}

// GetResources implements agl.Store.
func (s *Store) GetResources(ctx context.Context, p agl.GetResourcesParams) (agl.ResourcesUpdate, error) {
	return do(ctx, s, "GetResources", func() (agl.ResourcesUpdate, error) {
		return s.driver.Resources(ctx, p.ResourcesID)
	})
}

// GetLatestResources implements agl.Store.
func (s *Store) GetLatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	return do(ctx, s, "GetLatestResources", func() (agl.ResourcesUpdate, error) {
		return s.driver.LatestResources(ctx)
	})
}

// QueryResources implements agl.Store.
func (s *Store) QueryResources(ctx context.Context, p agl.QueryResourcesParams) (agl.Page[agl.ResourcesUpdate], error) {
	return do(ctx, s, "QueryResources", func() (agl.Page[agl.ResourcesUpdate], error) {
		if err := checkQuery(&p.Paging, "", sortableResources()); err != nil {
			return agl.Page[agl.ResourcesUpdate]{}, err
		}
		return s.driver.QueryResources(ctx, p)
	})
}
