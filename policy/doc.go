// Package policy is an embedded tiny language model that really trains, on a CPU, in the binary: a
// decoder-only transformer of about 107,000 parameters with a hand-written backward pass, behind the
// interfaces of package tinker. It exists so that examples, tests and CI can run the whole training loop
// without a GPU, a server or a download.
//
// # Determinism
//
// The same calls give the same bits, whatever the number of workers, with and without the AVX2 assembly
// kernels, and on every architecture: batches are always cut into four shards whose gradients are added in
// order, no product is fused with a sum, and the transcendental functions are our own. The log-probabilities
// that a sampler reports equal those that the trainer computes for the same weights, exactly. Each sample has
// a random stream that is a function of (seed, sample index) only.
//
// # What it can learn
//
// Small formal tasks with copying, in about ten thousand demonstrations. On the calculator example (five
// question forms, a tool, demonstrations that are mostly wrong), 1200 supervised steps of 32 at a peak rate of
// 3e-3, Adam 0.9/0.98 with clipping at 1, reach what the demonstrations reach; 120 steps of GRPO on 16 prompts
// × 8 with importance_sampling at 1e-3, falling to a tenth after the first quarter, then answer 0.94 to 0.98
// of the held-out questions. A constant rate ends lower and less evenly, as the last steps see few groups with
// any variance; 2e-3 makes forms lock on wrong answers. The optimizer is reset in between (LoadWeights without
// the optimizer).
//
// The package knows tokens, not text: it must not know about chat, tokenizers, rewards, rollouts or the
// store.
package policy
