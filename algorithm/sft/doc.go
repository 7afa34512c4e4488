// Package sft trains a model on demonstrations: cross-entropy over sequences of
// tokens, for a fixed number of steps.
//
// [Train] takes the sequences as they are: it warms a model up for reinforcement
// learning, or stands alone. [Tuner] is an algorithm that takes them from
// rollouts, filtered by reward: those that another run has left in a store
// (distillation, when a better model made them), or the best of the model's own,
// made anew in rounds (rejection sampling, as RFT of Yuan et al. 2023,
// arXiv:2308.01825, and expert iteration). What the model wrote is learned, as the
// tokens that it sampled; prompts and what tools said are not.
//
// A run is a function of its configuration, its tasks and the stored rollouts,
// where the engine is deterministic and agents sample with the seed that they are
// given; one that was killed and resumed ends as one that was not.
//
// The package knows tokens, the training protocol, and rollouts in a store. It must
// not know text, how agents run, or what serves the model.
package sft
