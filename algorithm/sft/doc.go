// Package sft trains a model on demonstrations: cross-entropy over sequences of tokens, for a fixed number of steps.
//
// [Train] is given the sequences. It prepares a model for reinforcement learning, or is used on its own. [SFT] is an
// algorithm that takes the sequences from rollouts, filtered by reward: those that another run has left in a store
// (distillation, if a better model made them), or the best of the model's own, sampled anew in each round (rejection
// sampling, as RFT of Yuan et al. 2023, arXiv:2308.01825, and expert iteration). The model learns the tokens that were
// sampled, not prompts or the output of tools.
//
//	source, err := sft.NewShuffled(demonstrations, 32, seed)
//	result, err := sft.Train(ctx, sft.TrainConfig{Service: engine, Source: source, Steps: 200, Schedule: algorithm.Schedule{Peak: 1e-3}})
//
// If the engine is deterministic and agents sample with the seed that they are given, the result depends only on the
// configuration, the tasks and the stored rollouts, even if the run was killed and resumed.
//
// The package knows tokens, the training protocol, and rollouts in a store. It must
// not know text, how agents run, or what serves the model.
package sft
