// Package policy is a tiny language model that really trains, on a CPU, inside the binary: a decoder-only transformer
// of about 107,000 parameters with a hand-written backward pass. Examples, tests and CI use it to run the whole training
// loop without a GPU, a server or a download.
//
// [NewService] returns a [tinker.Service]. A training client computes gradients (ForwardBackward), steps an Adam
// optimizer (OptimStep) and saves weights; a sampling client samples from saved weights:
//
//	service, err := policy.NewService(policy.Config{Vocab: 48})
//	model, err := service.CreateModel(ctx, tinker.CreateModelParams{Seed: 1})
//	result, err := model.ForwardBackward(ctx, tinker.ForwardParams{Data: data, Loss: loss})
//	step, err := model.OptimStep(ctx, tinker.AdamParams{LearningRate: 1e-3})
//	path, err := model.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: "v1"})
//	sampler, err := service.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: path})
//
// The package knows tokens, not text. It must not know about chat, tokenizers, rewards, rollouts or the store.
//
// # Determinism
//
// The same calls give the same bits, for any number of workers, with and without the AVX2 kernels, and on every
// architecture. Every batch is cut into four shards whose gradients are added in order, no product is fused with a sum,
// and the transcendental functions are our own. The log-probabilities of a sampler equal those of the trainer for the
// same weights, bit for bit. The random stream of a sample depends on (seed, sample index) only.
//
// # What it can learn
//
// It learns small formal tasks with copying from about ten thousand demonstrations. Package examples/calculator/recipe has
// settings that work: supervised steps on demonstrations that are mostly wrong, then reinforcement learning with a fresh
// optimizer and a falling rate, after which the model answers 0.94 to 0.99 of the held-out questions. A constant rate ends
// lower and less evenly, because few groups of the last steps have any variance; twice the rate locks some question forms
// on wrong answers.
//
// # Files
//
// service.go and training_client.go implement the interfaces of package tinker. trainer.go computes gradients and steps
// the optimizer, sampler.go samples, saved_weights.go finds weights. Below them transformer_*.go are the model and its
// two passes, kernel_*.go multiply matrices and have the scalar functions, and checkpoint*.go encode weights and keep
// them in memory or in a directory.
package policy
