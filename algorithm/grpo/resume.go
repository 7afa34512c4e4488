package grpo

import (
	"context"
	"fmt"
	"time"

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
	if err := r.metrics.Sync(); err != nil {
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
