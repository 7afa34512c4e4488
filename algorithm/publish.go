package algorithm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/tinker"
)

// Publication is a snapshot of the model for agents to call.
type Publication struct {
	// Snapshot is its path in the engine, for tinker.Service.NewSamplingClient.
	Snapshot string
	// Version is the id of the resources that were added for it. Rollouts are enqueued
	// with it, and the spans of their calls carry it as the model's version.
	Version string
	// ResourcesID is that of the resources. Roles that are trained together share it.
	ResourcesID string
	// Pinned maps the resources whose rollouts keep certain weights to the ResourcesID that these weights were published with, which may be
	// that of this publication. Nil pins none: all calls go to the snapshot.
	Pinned map[string]string
}

// Keeps reports whether rollouts are pinned to the weights that were published with a ResourcesID.
func (p Publication) Keeps(resourcesID string) bool {
	for _, of := range p.Pinned {
		if of == resourcesID {
			return true
		}
	}
	return false
}

// Publisher swaps the model that agents call.
type Publisher interface {
	// Publish returns when new calls go to the snapshot. Running calls finish on the one before. The newest version may be published again,
	// with other Pinned.
	Publish(ctx context.Context, p Publication) error
}

// publishedSnapshots are the snapshots of a publication, that of Session.Model first.
type publishedSnapshots struct {
	resourcesID string
	paths       []string
}

// retainSnapshots is the number of sampler snapshots that the engine keeps: the
// one that is served, and the one before, on which calls may still be running. It
// also keeps those that rollouts are pinned to.
const retainSnapshots = 2

// Publish makes the weights after a step those that agents call: it saves a sampler snapshot, adds a version of the
// resources for it, swaps the model, and deletes old snapshots. With SessionParams.Release it makes them a candidate, if it is time for
// one.
func (s *Session) Publish(ctx context.Context, step int) error {
	s.generation++
	if s.p.Release != nil {
		return s.offer(ctx)
	}
	return s.publishStep(ctx, step)
}

func (s *Session) publishStep(ctx context.Context, step int) (err error) {
	var newest publishedSnapshots
	defer func() {
		if err != nil && newest.paths != nil {
			s.snapshots = append(s.snapshots, newest) // Close deletes them
		}
	}()
	for _, client := range s.Model.clients {
		snapshot, err := client.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: snapshotName(step)})
		if err != nil {
			return fmt.Errorf("save weights for sampling: %w", err)
		}
		newest.paths = append(newest.paths, snapshot)
	}
	if newest.resourcesID, err = s.addVersion(ctx); err != nil {
		return err
	}
	pinned, err := s.serve(ctx, newest)
	if err != nil {
		return err
	}
	s.ResourcesID, s.snapshots = newest.resourcesID, append(s.snapshots, newest)
	s.deleteSnapshots(ctx, pinned, retainSnapshots)
	return nil
}

// addVersion adds a version of the resources that is about to be published.
func (s *Session) addVersion(ctx context.Context) (id string, err error) {
	version, err := s.p.Input.Store.AddResources(ctx, agl.AddResourcesParams{Resources: s.p.Input.InitialResources})
	if err != nil {
		return "", fmt.Errorf("add resources: %w", err)
	}
	return version.ResourcesID, s.writeVersion(version.ResourcesID)
}

// serve publishes the newest snapshots, and returns the publication with what is pinned.
func (s *Session) serve(ctx context.Context, newest publishedSnapshots) (Publication, error) {
	id := newest.resourcesID
	publication := Publication{Snapshot: newest.paths[0], Version: id, ResourcesID: id, Pinned: s.pinned(id)}
	if err := s.publishSnapshot(ctx, s.p.Training.Publisher, s.Calls, publication); err != nil {
		return publication, err
	}
	for i, role := range s.Roles {
		publication.Snapshot, publication.Version = newest.paths[i+1], role.Version(id)
		if err := s.publishSnapshot(ctx, role.Publisher, role.Calls, publication); err != nil {
			return publication, fmt.Errorf("role %s: %w", role.Name, err)
		}
	}
	return publication, nil
}

// closeTimeout limits the deletions at the end of a process: the engine may be away.
const closeTimeout = 10 * time.Second

// closeSnapshots deletes the snapshots that nothing calls any more. A run that has steps left publishes its weights again when it resumes.
func (s *Session) closeSnapshots(ctx context.Context) {
	ctx, done := context.WithTimeout(ctx, closeTimeout)
	defer done()
	retain := retainSnapshots
	if s.Step < s.p.Steps {
		retain = 0
	}
	s.deleteSnapshots(ctx, Publication{}, retain)
}

// deleteSnapshots deletes all but the newest snapshots, except for those that rollouts are pinned to.
func (s *Session) deleteSnapshots(ctx context.Context, publication Publication, retain int) {
	old := len(s.snapshots) - retain
	s.snapshots = slices.DeleteFunc(s.snapshots, func(p publishedSnapshots) bool {
		if old--; old < 0 || publication.Keeps(p.resourcesID) {
			return false
		}
		for _, path := range p.paths {
			if err := DeleteWeights(ctx, s.p.Training.Service, path); err != nil {
				s.p.Logger.WarnContext(ctx, "delete an old sampler snapshot", "error", err)
			}
		}
		return true
	})
}

// pinned returns what Publication.Pinned holds when the resources next are published: those of running rollouts, the current ones, with
// which more may be enqueued until then, the next ones, and those of a validation beside training.
func (s *Session) pinned(next string) map[string]string {
	var pinned map[string]string
	if s.p.Pinned != nil {
		pinned = map[string]string{next: next}
		for _, id := range append(s.p.Pinned(), s.ResourcesID) {
			if id != "" {
				pinned[id] = id
			}
		}
	}
	if v := s.beside; v != nil {
		if pinned == nil {
			pinned = map[string]string{}
		}
		pinned[v.resources] = v.of
	}
	return pinned
}

func (s *Session) versionsFile() string { return filepath.Join(s.p.OutDir, "versions.json") }

// writeVersion adds a version that is about to be published to versions.json: see [SessionParams].KeepVersions.
func (s *Session) writeVersion(version string) error {
	if !s.p.KeepVersions || s.p.OutDir == "" {
		return nil
	}
	s.unsaved = append(s.unsaved, version)
	if err := durable.WriteJSON(s.versionsFile(), s.unsaved); err != nil {
		return fmt.Errorf("write the versions that are published: %w", err)
	}
	return nil
}

// readVersions reads versions.json, so that the calls of versions that no checkpoint has count as
// those of the model in training.
func (s *Session) readVersions() error {
	if !s.p.KeepVersions || s.p.OutDir == "" {
		return nil
	}
	data, err := os.ReadFile(s.versionsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s.unsaved)
	}
	if err != nil {
		return fmt.Errorf("read the versions that were published: %s: %w; without this file their calls are not learned from", s.versionsFile(), err)
	}
	for _, version := range s.unsaved {
		s.Calls.Published(version, s.generation)
	}
	return nil
}

// publishSnapshot publishes a snapshot of a model, if there is a publisher.
func (s *Session) publishSnapshot(ctx context.Context, publisher Publisher, calls *PolicyCalls, p Publication) error {
	if publisher == nil {
		return nil
	}
	calls.Published(p.Version, s.generation) // calls may come before Publish returns
	if err := publisher.Publish(ctx, p); err != nil {
		return fmt.Errorf("publish snapshot %s: %w", p.Snapshot, err)
	}
	return nil
}
