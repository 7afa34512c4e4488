package grpo

import (
	"context"
	"fmt"

	"github.com/agl-go/agl/tinker"
)

// KL keeps the model near a reference. From the advantage of each sampled token it subtracts how much likelier the token is
// under the policy than under the reference, relative to the mean over the batch:
//
//	Âₜ ← Âₜ − β·(dₜ − mean d),   dₜ = log π_sampler(oₜ) − log π_ref(oₜ)
//
// The mean of d over tokens of the policy estimates KL(π‖π_ref) (k1 of Schulman 2020,
// http://joschu.net/blog/kl-approx.html). As a part of the reward, as in RLHF (Ouyang et al. 2022, arXiv:2203.02155, eq. 2),
// it needs nothing from an engine but Forward: the reference is a second model, which is never trained. Groups without an
// advantage are still skipped.
type KL struct {
	// Coefficient is β, in units of the advantage per nat; zero turns the penalty off.
	Coefficient float64
	// Reference is a checkpoint of the engine; empty means the weights that the run starts from: InitialWeights or, without
	// them, a new model, which on engines that train adapters is the base model.
	Reference string
}

// penalize subtracts the penalty from the advantages of data and returns the mean of d.
func penalize(ctx context.Context, reference tinker.TrainingClient, data []tinker.Datum, coefficient float64) (kl float64, err error) {
	batch := make([]tinker.Datum, len(data))
	for i, d := range data {
		batch[i] = tinker.Datum{Input: d.Input, Targets: d.Targets, Weights: d.Weights}
	}
	res, err := reference.Forward(ctx, tinker.ForwardParams{Data: batch, Loss: tinker.Loss{Name: tinker.CrossEntropy}})
	if err != nil {
		return 0, fmt.Errorf("log-probabilities of the reference: %w", err)
	}
	return subtractPenalty(data, res.Logprobs, coefficient)
}

// subtractPenalty is penalize, given the log-probabilities of the reference: one slice per datum, one number per target.
func subtractPenalty(data []tinker.Datum, reference [][]float32, coefficient float64) (kl float64, err error) {
	if err := checkLogprobs(data, reference); err != nil {
		return 0, err
	}
	n := 0
	for k := range data {
		for i, w := range data[k].Weights {
			if w != 0 {
				kl += float64(data[k].Logprobs[i]) - float64(reference[k][i])
				n++
			}
		}
	}
	if n == 0 {
		return 0, nil
	}
	kl /= float64(n)
	for k := range data {
		for i, w := range data[k].Weights {
			if w != 0 {
				d := float64(data[k].Logprobs[i]) - float64(reference[k][i])
				data[k].Advantages[i] += float32(coefficient * (kl - d))
			}
		}
	}
	return kl, nil
}
