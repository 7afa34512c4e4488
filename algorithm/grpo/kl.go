package grpo

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/agl-go/agl/tinker"
)

// KL holds the model near a reference: from the advantage of each sampled token
// goes Coefficient times how much likelier it is under the policy than under the
// reference, over the mean of that in the batch,
//
//	Âₜ ← Âₜ − β·(dₜ − mean d),   dₜ = log π_sampler(oₜ) − log π_ref(oₜ)
//
// The mean of d over tokens of the policy estimates KL(π‖π_ref) (k1 of Schulman
// 2020, http://joschu.net/blog/kl-approx.html). As a part of the reward, as in
// RLHF (Ouyang et al. 2022, arXiv:2203.02155, eq. 2), it needs nothing of an
// engine but Forward: the reference is a second model, which is never trained.
// Groups without an advantage stay left out.
type KL struct {
	// Coefficient is β, in units of the advantage per nat; zero turns it off.
	Coefficient float64
	// Reference is a checkpoint of the engine; empty means what the run starts
	// from: InitialWeights or, without them, a fresh model, which on engines that
	// train adapters is the base model.
	Reference string
}

// reference is the checkpoint that the model is held near; empty is a fresh model.
func (c Config) reference() string { return cmp.Or(c.KL.Reference, c.InitialWeights) }

// openReference makes the reference model and loads its weights.
func (r *run) openReference(ctx context.Context) error {
	if r.cfg.KL.Coefficient == 0 {
		return nil
	}
	client, err := r.cfg.Service.CreateModel(ctx, r.cfg.Model)
	if err != nil {
		return fmt.Errorf("create the reference model of KL: %w", err)
	}
	r.reference = client
	weights := r.cfg.reference()
	if weights == "" {
		return nil
	}
	if err := client.LoadWeights(ctx, tinker.LoadWeightsParams{Path: weights}); err != nil {
		return fmt.Errorf("load the reference of KL from %s: %w", weights, err)
	}
	return nil
}

// shape takes the penalty from the advantages of the batch.
func (r *run) shape(ctx context.Context, data []tinker.Datum, report *StepReport) error {
	if r.reference == nil {
		return nil
	}
	batch := make([]tinker.Datum, len(data))
	for i, d := range data {
		batch[i] = tinker.Datum{Input: d.Input, Targets: d.Targets, Weights: d.Weights}
	}
	res, err := r.reference.Forward(ctx, tinker.ForwardParams{Data: batch, Loss: tinker.Loss{Name: tinker.CrossEntropy}})
	if err != nil {
		return fmt.Errorf("log-probabilities of the reference: %w", err)
	}
	report.KL, err = penalize(data, res.Logprobs, r.cfg.KL.Coefficient)
	return err
}

// penalize changes the advantages of data by the log-probabilities of a reference
// and returns the mean of d.
func penalize(data []tinker.Datum, reference [][]float32, coefficient float64) (kl float64, err error) {
	if len(reference) != len(data) {
		return 0, errors.New("the engine answered another number of data than it was given")
	}
	n := 0
	for k := range data {
		if len(reference[k]) != len(data[k].Weights) {
			return 0, fmt.Errorf("the engine answered %d log-probabilities for %d tokens", len(reference[k]), len(data[k].Weights))
		}
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
