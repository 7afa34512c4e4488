package grpo

import (
	"context"
	"errors"
	"fmt"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// keepSnapshots is how many sampler snapshots the engine keeps: the one that is
// served and the one before, on which calls may still be running.
const keepSnapshots = 2

// publish makes the current weights the model that agents call: a snapshot of
// them, a version of the resources that stands for it, and the swap.
func (r *run) publish(ctx context.Context, step int) error {
	snapshot, err := r.client.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: fmt.Sprintf("step-%08d", step)})
	if err != nil {
		return fmt.Errorf("save weights for sampling: %w", err)
	}
	version, err := r.in.Store.AddResources(ctx, agl.AddResourcesParams{Resources: r.in.InitialResources})
	if err != nil {
		return fmt.Errorf("add resources: %w", err)
	}
	if r.cfg.Publisher != nil {
		err := r.cfg.Publisher.Publish(ctx, Publication{Snapshot: snapshot, Version: version.ResourcesID})
		if err != nil {
			return fmt.Errorf("publish snapshot %s: %w", snapshot, err)
		}
	}
	r.state.ResourcesID = version.ResourcesID
	r.snapshots = append(r.snapshots, snapshot)
	for len(r.snapshots) > keepSnapshots {
		err := r.cfg.Service.DeleteWeights(ctx, tinker.DeleteWeightsParams{Path: r.snapshots[0]})
		if err != nil && !errors.Is(err, agl.ErrNotFound) && !errors.Is(err, agl.ErrUnimplemented) {
			r.cfg.Logger.WarnContext(ctx, "delete an old sampler snapshot", "path", r.snapshots[0], "error", err)
		}
		r.snapshots = r.snapshots[1:]
	}
	return nil
}
