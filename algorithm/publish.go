package algorithm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// Publication is a snapshot of the model that is to be served.
type Publication struct {
	// Snapshot is the engine's path of it, for tinker.Service.NewSamplingClient.
	Snapshot string
	// Version is the id of the resources that go with it: rollouts are enqueued
	// with it, and the spans of their calls carry it as the model's version.
	Version string
}

// Publisher swaps the model that agents call.
type Publisher interface {
	// Publish returns when calls that begin from now on go to the snapshot. Calls
	// that are running finish on the one before.
	Publish(ctx context.Context, p Publication) error
}

// keepSnapshots is how many sampler snapshots the engine keeps: the one that is
// served and the one before, on which calls may still be running.
const keepSnapshots = 2

// Serving makes the weights of a model in training those that agents call. All
// but Publisher, without which the engine serves its newest snapshot by itself,
// and Resources are required. It is used by one goroutine.
type Serving struct {
	Client    tinker.TrainingClient
	Service   tinker.Service
	Store     agl.Store
	Resources agl.Resources
	Publisher Publisher
	Logger    *slog.Logger

	snapshots []string // that the engine still holds, oldest first
}

// Publish makes the current weights the model that agents call: a snapshot of
// them, a version of the resources that stands for it, and the swap. Older
// snapshots than the one before are deleted.
func (s *Serving) Publish(ctx context.Context, name string) (Publication, error) {
	snapshot, err := s.Client.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: name})
	if err != nil {
		return Publication{}, fmt.Errorf("save weights for sampling: %w", err)
	}
	version, err := s.Store.AddResources(ctx, agl.AddResourcesParams{Resources: s.Resources})
	if err != nil {
		return Publication{}, fmt.Errorf("add resources: %w", err)
	}
	p := Publication{Snapshot: snapshot, Version: version.ResourcesID}
	if s.Publisher != nil {
		if err := s.Publisher.Publish(ctx, p); err != nil {
			return Publication{}, fmt.Errorf("publish snapshot %s: %w", snapshot, err)
		}
	}
	s.snapshots = append(s.snapshots, snapshot)
	for len(s.snapshots) > keepSnapshots {
		err := s.Service.DeleteWeights(ctx, tinker.DeleteWeightsParams{Path: s.snapshots[0]})
		if err != nil && !errors.Is(err, agl.ErrNotFound) && !errors.Is(err, agl.ErrUnimplemented) {
			s.Logger.WarnContext(ctx, "delete an old sampler snapshot", "path", s.snapshots[0], "error", err)
		}
		s.snapshots = s.snapshots[1:]
	}
	return p, nil
}

// Snapshot is the path of the last snapshot published; empty is none.
func (s *Serving) Snapshot() string {
	if s == nil || len(s.snapshots) == 0 {
		return ""
	}
	return s.snapshots[len(s.snapshots)-1]
}
