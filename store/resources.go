package store

import (
	"cmp"
	"context"
	"errors"
	"sort"
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/randomid"
	"github.com/agl-go/agl/store/driver"
)

// Earlier versions of a bundle are documents: the series of its id, by version.
const (
	versionKind  = "resources-version"
	keptVersions = 64 // of each bundle; a bundle in use keeps more, until it is deleted (docs/operations.md)
)

func versionKey(id string, version int) driver.DocumentKey {
	return driver.DocumentKey{Kind: versionKind, ID: id + "@" + strconv.Itoa(version)}
}

// keepVersion stores the version of a bundle that is about to be replaced.
func (w *unitOfWork) keepVersion(old *agl.ResourcesUpdate) {
	key := versionKey(old.ResourcesID, old.Version)
	w.changes.Documents = append(w.changes.Documents, &agl.Document{
		Kind: key.Kind, ID: key.ID, Parent: old.ResourcesID, Sequence: int64(old.Version), Version: 1, UpdateTime: old.UpdateTime, Body: old.AppendJSON(nil),
	})
	if last := old.Version - keptVersions; last > 0 && !w.resourcesInUse(old.ResourcesID) {
		w.changes.DeletedDocuments = append(w.changes.DeletedDocuments, versionKey(old.ResourcesID, last))
	}
}

// deleteVersions removes the earlier versions of a bundle.
func (w *unitOfWork) deleteVersions(u *agl.ResourcesUpdate) {
	for version := 1; version < u.Version; version++ {
		w.changes.DeletedDocuments = append(w.changes.DeletedDocuments, versionKey(u.ResourcesID, version))
	}
}

// resources returns the version of a bundle that p asks for.
func (s *Store) resources(ctx context.Context, p agl.GetResourcesParams) (agl.ResourcesUpdate, error) {
	if p.Version.Valid && p.RolloutID != "" {
		return agl.ResourcesUpdate{}, agl.Errorf(agl.CodeInvalid, "version, rollout_id: got %d and %.100q, must be one of them", p.Version.V, p.RolloutID)
	}
	now, err := s.driver.Resources(ctx, p.ResourcesID)
	switch {
	case err != nil:
		return now, err
	case p.Version.Valid && p.Version.V != now.Version:
		return s.version(ctx, p.ResourcesID, p.Version.V)
	case p.RolloutID == "" || now.Version == 1:
		return now, nil
	}
	rollout, err := s.GetRollout(ctx, agl.GetRolloutParams{RolloutID: p.RolloutID})
	if err != nil {
		return agl.ResourcesUpdate{}, err
	}
	if now.UpdateTime <= rollout.StartTime {
		return now, nil
	}
	younger := 1 + sort.Search(now.Version-1, func(i int) bool {
		earlier, missing := s.version(ctx, p.ResourcesID, i+1)
		if missing != nil && !errors.Is(missing, agl.ErrNotFound) {
			err = missing
		}
		return missing == nil && earlier.UpdateTime > rollout.StartTime // versions that are gone are older
	})
	if err != nil {
		return agl.ResourcesUpdate{}, err
	}
	return s.version(ctx, p.ResourcesID, max(younger-1, 1))
}

// version returns an earlier version of a bundle.
func (s *Store) version(ctx context.Context, id string, version int) (u agl.ResourcesUpdate, err error) {
	d, err := s.driver.Document(ctx, versionKey(id, version))
	if errors.Is(err, agl.ErrNotFound) {
		return u, agl.Errorf(agl.CodeNotFound, "Resources %s have no version %d", id, version)
	}
	if err != nil {
		return u, err
	}
	if err := u.UnmarshalJSON(d.Body); err != nil {
		return u, agl.Errorf(agl.CodeInternal, "version %d of resources %s does not decode: %w", version, id, err)
	}
	return u, nil
}

// putResources stores a bundle: under a new id or, with upsert, under the given one. With keep, the latest bundle stays the latest.
func (s *Store) putResources(ctx context.Context, key *idempotencyKey, id string, upsert, keep bool, resources agl.Resources) (agl.ResourcesUpdate, error) {
	if err := checkResourcesUTF8(resources); err != nil {
		return agl.ResourcesUpdate{}, err
	}
	return submitOnce(ctx, s.committer, key, func(want *driver.LoadParams) {
		want.Resources = append(want.Resources, id)
		if upsert {
			want.ResourcesInUse = append(want.ResourcesInUse, id)
		}
	}, func(w *unitOfWork) (agl.ResourcesUpdate, error) {
		for !upsert && w.resources[id] != nil {
			id = "rs-" + randomid.Hex(resourcesIDBytes)
		}
		u := agl.ResourcesUpdate{ResourcesID: id, CreateTime: w.now, UpdateTime: w.now, Version: 1, Resources: resources}
		if old := w.resources[id]; old != nil {
			u.CreateTime, u.Version = old.CreateTime, old.Version+1
			w.keepVersion(old)
		}
		w.resources[id] = &u
		if !keep {
			w.latestResources = agl.Some(id)
			w.changes.LatestResources = w.latestResources
		}
		w.changes.Resources = append(w.changes.Resources, &u)
		w.changes.Events = append(w.changes.Events, agl.Event{Kind: agl.EventResources, ResourcesID: id})
		key.record(w, driver.IdempotencyRecord{ResourcesID: id})
		return u, nil
	}, func(earlier *driver.IdempotencyRecord) (agl.ResourcesUpdate, error) {
		return s.driver.Resources(ctx, earlier.ResourcesID)
	})
}

// AddResources implements agl.Store.
func (s *Store) AddResources(ctx context.Context, p agl.AddResourcesParams) (agl.ResourcesUpdate, error) {
	invalid := cmp.Or(checkIDs(givenText{"idempotency_key", p.IdempotencyKey}), p.Resources.Validate())
	return do(ctx, s, "AddResources", invalid, func() (agl.ResourcesUpdate, error) {
		key := newKey("add_resources", p.IdempotencyKey, nil, p.Resources.AppendJSON)
		return s.putResources(ctx, key, "rs-"+randomid.Hex(resourcesIDBytes), false, p.KeepLatest, p.Resources)
	})
}

// UpdateResources implements agl.Store.
func (s *Store) UpdateResources(ctx context.Context, p agl.UpdateResourcesParams) (agl.ResourcesUpdate, error) {
	invalid := cmp.Or(checkIDs(givenText{"resources_id", p.ResourcesID}, givenText{"idempotency_key", p.IdempotencyKey}), p.Resources.Validate())
	return do(ctx, s, "UpdateResources", invalid, func() (agl.ResourcesUpdate, error) {
		key := newKey("update_resources", p.IdempotencyKey, []string{p.ResourcesID}, p.Resources.AppendJSON)
		return s.putResources(ctx, key, p.ResourcesID, true, p.KeepLatest, p.Resources)
	})
}

// GetResources implements agl.Store.
func (s *Store) GetResources(ctx context.Context, p agl.GetResourcesParams) (agl.ResourcesUpdate, error) {
	return do(ctx, s, "GetResources", nil, func() (agl.ResourcesUpdate, error) {
		return s.resources(ctx, p)
	})
}

// GetLatestResources implements agl.Store.
func (s *Store) GetLatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	return do(ctx, s, "GetLatestResources", nil, func() (agl.ResourcesUpdate, error) {
		return s.driver.LatestResources(ctx)
	})
}

// QueryResources implements agl.Store.
func (s *Store) QueryResources(ctx context.Context, p agl.QueryResourcesParams) (agl.Page[agl.ResourcesUpdate], error) {
	return do(ctx, s, "QueryResources", checkQuery(&p.Paging, "", sortableResources), func() (agl.Page[agl.ResourcesUpdate], error) {
		return s.driver.QueryResources(ctx, p)
	})
}
