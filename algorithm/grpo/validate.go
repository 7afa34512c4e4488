package grpo

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// validate tries the validation dataset with the model that is published.
func (r *run) validate(ctx context.Context, report *StepReport) error {
	start := time.Now()
	resources, err := algorithm.SamplingVersion(ctx, r.in.Store, r.in.InitialResources, r.cfg.Validation.Sampling, r.state.ResourcesID)
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	tag, err := json.Marshal(rolloutTag{Algorithm: "grpo", Run: r.state.Run, Step: r.step})
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	result, err := algorithm.Evaluate(ctx, algorithm.Evaluation{
		Store: r.in.Store, Flusher: r.cfg.Flusher, Tasks: r.in.Val, N: r.cfg.Validation.N,
		ResourcesID: agl.Some(resources), Rollout: r.cfg.Rollout, Metadata: tag,
		// The same seeds each time, so that two validations differ by their weights alone.
		Seed: r.cfg.Seed, PassReward: r.cfg.PassReward, Form: r.cfg.Form, Logger: r.cfg.Logger,
		Progress: func(done, total int) { r.cfg.Progress.OnRollouts(PhaseValidation, r.step, done, total) },
	})
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	report.Validation = &result
	report.Seconds.Validate = time.Since(start).Seconds()
	r.state.Totals.Rollouts += len(result.Results)
	r.state.Totals.addMasked(result.Masked)
	r.cfg.Progress.OnValidation(r.step, result)
	return nil
}
