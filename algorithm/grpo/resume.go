package grpo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"

	"github.com/go-json-experiment/json"
)

// checkpoint saves weights and state.
func (r *run) checkpoint(ctx context.Context, report *StepReport) error {
	if r.checkpoints == nil {
		return nil
	}
	if err := r.saveWeights(ctx, report); err != nil {
		return err
	}
	return r.saveState(ctx)
}

// saveWeights is the first half of a checkpoint; no checkpoint refers to the
// weights until saveState, and a process that ends before it leaves a note of them
// for the next.
func (r *run) saveWeights(ctx context.Context, report *StepReport) error {
	start := time.Now()
	weights, err := r.client.SaveWeights(ctx, tinker.SaveWeightsParams{Name: fmt.Sprintf("step-%08d", r.step)})
	if err != nil {
		return fmt.Errorf("save weights: %w", err)
	}
	if err := r.checkpoints.Pend(weights); err != nil {
		return err
	}
	r.weights = weights
	report.Seconds.Checkpoint = time.Since(start).Seconds()
	return nil
}

// saveState is the second half: from here on a later run resumes at this step.
func (r *run) saveState(ctx context.Context) (err error) {
	if err := r.metrics.sync(); err != nil {
		return err
	}
	if r.state.Source, err = r.source.State(); err != nil {
		return fmt.Errorf("place in the tasks: %w", err)
	}
	raw, err := json.Marshal(r.state, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	return r.checkpoints.Save(ctx, algorithm.Checkpoint{Step: r.step, Weights: r.weights, Identity: r.identity, State: raw})
}

// cancelLeftovers cancels the rollouts of this run that a process before this
// one left unfinished in a store that outlived it.
func (r *run) cancelLeftovers(ctx context.Context) error {
	page, err := r.in.Store.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{
		agl.RolloutQueuing, agl.RolloutRequeuing, agl.RolloutPreparing, agl.RolloutRunning,
	}})
	if err != nil {
		return fmt.Errorf("look for rollouts of the interrupted run: %w", err)
	}
	for _, rollout := range page.Items {
		var tag rolloutTag
		if agl.DecodeJSON(rollout.Metadata, &tag) != nil || tag.Run != r.state.Run {
			continue
		}
		_, err := r.in.Store.CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: rollout.RolloutID})
		if err != nil && !errors.Is(err, agl.ErrNotFound) {
			return fmt.Errorf("cancel rollout %s of the interrupted run: %w", rollout.RolloutID, err)
		}
	}
	return nil
}
