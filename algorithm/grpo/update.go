package grpo

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/agl-go/agl/tinker"
)

// updater takes the optimizer steps of a step.
type updater struct {
	cfg       Config
	client    tinker.TrainingClient
	reference tinker.TrainingClient // of KL; nil without it
	vocab     int                   // of the model; 0 is unknown
}

// openReference creates the reference model; nil without KL. The caller unloads the model, even after an error.
func openReference(ctx context.Context, c Config) (tinker.TrainingClient, error) {
	if c.KL.Coefficient == 0 {
		return nil, nil //nolint:nilnil // no reference is needed
	}
	client, err := c.Service.CreateModel(ctx, c.Model)
	if err != nil {
		return nil, fmt.Errorf("create the reference model of KL: %w", err)
	}
	weights := c.reference()
	if weights == "" {
		return client, nil
	}
	if err := client.LoadWeights(ctx, tinker.LoadWeightsParams{Path: weights}); err != nil {
		return client, fmt.Errorf("load the reference of KL from %s: %w", weights, err)
	}
	return client, nil
}

// update takes the optimizer steps of a step. Without data it takes none.
func (u *updater) update(ctx context.Context, data []tinker.Datum, report *StepReport) (err error) {
	if len(data) == 0 {
		return nil
	}
	start := time.Now()
	for i := range data {
		if err := data[i].Validate(u.cfg.Loss.Name, u.vocab); err != nil {
			return fmt.Errorf("the recorded tokens do not fit the model in training; do the agents call another model? %w", err)
		}
	}
	if u.reference != nil {
		if report.KL, err = penalize(ctx, u.reference, data, u.cfg.KL.Coefficient); err != nil {
			return err
		}
	}
	if data, err = u.correct(ctx, data, report); err != nil || len(data) == 0 {
		return err
	}
	adam := u.cfg.Adam
	adam.LearningRate = u.cfg.Schedule.Rate(report.Step-1, u.cfg.Steps)
	n := min(u.cfg.Minibatches, len(data))
	for i := range n {
		part := data[i*len(data)/n : (i+1)*len(data)/n]
		anchored, err := u.anchor(ctx, report.Step, n)
		if err != nil {
			return err
		}
		report.AnchorLoss += anchored
		forward, optim, err := tinker.Step(ctx, u.client, tinker.ForwardParams{Data: part, Loss: u.cfg.Loss}, adam)
		if err != nil {
			return err
		}
		if i == 0 {
			report.LogprobGap = logprobGap(part, forward.Logprobs)
			if report.Drift == nil {
				drift := driftOf(part, forward.Logprobs, u.cfg.Loss)
				report.Drift = &drift
			}
		}
		report.Loss += forward.Loss / float64(n)
		report.GradNorm += optim.GradNorm / float64(n)
	}
	report.Updates = n
	report.LearningRate = adam.LearningRate
	report.Seconds.Train = time.Since(start).Seconds()
	return nil
}

// correct applies the correction, for which it asks the engine for the log-probabilities of all data.
func (u *updater) correct(ctx context.Context, data []tinker.Datum, report *StepReport) ([]tinker.Datum, error) {
	if u.cfg.Correction.Kind == "" {
		return data, nil
	}
	proximal, err := u.client.Forward(ctx, tinker.ForwardParams{Data: data, Loss: u.cfg.Loss})
	if err != nil {
		return nil, fmt.Errorf("log-probabilities of the weights in training: %w", err)
	}
	if len(proximal.Logprobs) != len(data) {
		return nil, fmt.Errorf("the engine returned log-probabilities for %d sequences, but was given %d", len(proximal.Logprobs), len(data))
	}
	tokens := 0
	for k := range data {
		if len(proximal.Logprobs[k]) != len(data[k].Weights) {
			return nil, fmt.Errorf("the engine returned %d log-probabilities for %d tokens", len(proximal.Logprobs[k]), len(data[k].Weights))
		}
		for _, w := range data[k].Weights {
			if w != 0 {
				tokens++
			}
		}
	}
	drift := driftOf(data, proximal.Logprobs, u.cfg.Loss)
	kept, rejected := u.cfg.Correction.Apply(data, proximal.Logprobs)
	drift.Rejected = ratio(rejected, tokens)
	report.Drift = &drift
	return kept, nil
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
