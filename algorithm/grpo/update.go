package grpo

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/agl-go/agl/tinker"
)

// update takes the optimizer steps of a step. No data means none.
func (r *run) update(ctx context.Context, data []tinker.Datum, report *StepReport) error {
	if len(data) == 0 {
		return nil
	}
	start := time.Now()
	for i := range data {
		if err := data[i].Validate(r.cfg.Loss.Name, r.vocab); err != nil {
			return fmt.Errorf("the recorded tokens do not fit the model that is trained; do the agents call another one? %w", err)
		}
	}
	if err := r.shape(ctx, data, report); err != nil {
		return err
	}
	adam := r.cfg.Adam
	adam.LearningRate = r.cfg.Schedule.Rate(report.Step-1, r.cfg.Steps)
	n := min(r.cfg.Minibatches, len(data))
	for i := range n {
		part := data[i*len(data)/n : (i+1)*len(data)/n]
		forward, err := r.client.ForwardBackward(ctx, tinker.ForwardParams{Data: part, Loss: r.cfg.Loss})
		if err != nil {
			return fmt.Errorf("forward and backward: %w", err)
		}
		optim, err := r.client.OptimStep(ctx, adam)
		if err != nil {
			return fmt.Errorf("optimizer: %w", err)
		}
		if i == 0 {
			report.LogprobGap = logprobGap(part, forward.Logprobs)
		}
		report.Loss += forward.Loss
		report.GradNorm += optim.GradNorm / float64(n)
	}
	report.Updates = n
	report.LearningRate = adam.LearningRate
	report.Seconds.Train = time.Since(start).Seconds()
	return nil
}

// logprobGap compares the sampler's log-probabilities with the trainer's.
func logprobGap(data []tinker.Datum, trainer [][]float32) Gap {
	var gap Gap
	n := 0
	for k := range min(len(data), len(trainer)) {
		weights, sampler, logprobs := data[k].Weights, data[k].Logprobs, trainer[k] //nolint:gosec // k is below both lengths
		for i := range min(len(weights), len(sampler), len(logprobs)) {
			if weights[i] == 0 {
				continue
			}
			d := math.Abs(float64(logprobs[i]) - float64(sampler[i]))
			gap.Mean += d
			gap.Max = max(gap.Max, d)
			n++
		}
	}
	if n > 0 {
		gap.Mean /= float64(n)
	}
	return gap
}
