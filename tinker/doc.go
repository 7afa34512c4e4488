// Package tinker is the Tinker training protocol in Go: the interfaces through which an algorithm drives an engine that
// holds a model's weights. An engine creates models, adds up gradients, takes optimizer steps, saves checkpoints and
// publishes snapshots; whoever serves agents samples tokens from those:
//
//	model, err := service.CreateModel(ctx, tinker.CreateModelParams{BaseModel: "Qwen/Qwen3-4B"})
//	result, err := model.ForwardBackward(ctx, tinker.ForwardParams{Data: batch, Loss: tinker.Loss{Name: tinker.PPO}})
//	step, err := model.OptimStep(ctx, tinker.AdamParams{LearningRate: 1e-5})
//	path, err := model.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: "step-1"})
//	sampler, err := service.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: path})
//
// The interfaces mirror the protocol of Thinking Machines' Tinker SDK (package tinker, Apache-2.0,
// https://tinker-docs.thinkingmachines.ai), which several independent servers speak, so that one algorithm can train on
// any of them: package policy is an engine of this process, package client drives one over HTTP, package server serves
// one, and package engines knows what each of them can do.
//
// The package knows tokens and numbers. It must not know text or chat templates (which package chat does), rewards,
// rollouts, the store, or how an engine works.
//
// # Order
//
// An engine runs the training calls of one model in the order in which they were made. A caller that makes them from
// several goroutines and needs a certain order waits for one call before it makes the next. Samples are independent of
// that order where [Capabilities.ImmutableSnapshots] is set.
package tinker
