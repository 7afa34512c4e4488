package algorithm

import (
	"context"
	"fmt"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// Publication is a snapshot of the model that agents are to call.
type Publication struct {
	// Snapshot is its path in the engine, for tinker.Service.NewSamplingClient.
	Snapshot string
	// Version is the id of the resources that were added for it. Rollouts are enqueued
	// with it, and the spans of their calls carry it as the model's version.
	Version string
	// ResourcesID is that of the resources. Roles that are trained together share it.
	ResourcesID string
	// Pinned are the resources whose rollouts keep the weights that were published with them, ResourcesID included. Nil pins none:
	// all calls go to the snapshot.
	Pinned []string
}

// Publisher swaps the model that agents call.
type Publisher interface {
	// Publish returns when new calls go to the snapshot. Running calls finish on the one before.
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

func (s *Session) publish(ctx context.Context) error { return s.publishStep(ctx, s.Step) }

func (s *Session) publishStep(ctx context.Context, step int) error {
	var snapshots []string
	for _, client := range s.Model.clients() {
		snapshot, err := client.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: snapshotName(step)})
		if err != nil {
			return fmt.Errorf("save weights for sampling: %w", err)
		}
		snapshots = append(snapshots, snapshot)
	}
	version, err := s.p.Input.Store.AddResources(ctx, agl.AddResourcesParams{Resources: s.p.Input.InitialResources})
	if err != nil {
		return fmt.Errorf("add resources: %w", err)
	}
	publication := Publication{Snapshot: snapshots[0], Version: version.ResourcesID, ResourcesID: version.ResourcesID, Pinned: s.pinned(version.ResourcesID)}
	if err := s.publishSnapshot(ctx, s.p.Training.Publisher, s.Calls, publication); err != nil {
		return err
	}
	for i, role := range s.Roles {
		publication.Snapshot, publication.Version = snapshots[i+1], role.Version(version.ResourcesID)
		if err := s.publishSnapshot(ctx, role.Publisher, role.Calls, publication); err != nil {
			return fmt.Errorf("role %s: %w", role.Name, err)
		}
	}
	s.ResourcesID, s.snapshots = version.ResourcesID, append(s.snapshots, publishedSnapshots{version.ResourcesID, snapshots})
	s.deleteSnapshots(ctx, publication.Pinned)
	return nil
}

// deleteSnapshots deletes old snapshots, except for those that rollouts are pinned to.
func (s *Session) deleteSnapshots(ctx context.Context, pinned []string) {
	old := len(s.snapshots) - retainSnapshots
	s.snapshots = slices.DeleteFunc(s.snapshots, func(p publishedSnapshots) bool {
		if old--; old < 0 || slices.Contains(pinned, p.resourcesID) {
			return false
		}
		for _, path := range p.paths {
			if err := deleteWeights(ctx, s.p.Training.Service, path); err != nil {
				s.p.Logger.WarnContext(ctx, "delete an old sampler snapshot", "error", err)
			}
		}
		return true
	})
}

// pinned returns the resources whose rollouts may still call when the next ones are published: those of running rollouts, those of now,
// with which more may be enqueued until then, and the next.
func (s *Session) pinned(next string) []string {
	if s.p.Pinned == nil {
		return nil
	}
	pinned := append(s.p.Pinned(), next)
	if s.ResourcesID != "" {
		pinned = append(pinned, s.ResourcesID)
	}
	slices.Sort(pinned)
	return slices.Compact(pinned)
}

// publishSnapshot makes a snapshot of a model the one that agents call, if there is a publisher.
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
