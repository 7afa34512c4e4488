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
// Small formal tasks with copying, in about ten thousand demonstrations. Measured on the calculator example
// (five question forms, a tool, wrong demonstrations): 1200 supervised steps of 32 at a peak rate of 3e-3
// (100 steps up, then linearly to 0), Adam 0.9/0.98 with clipping at 1, reach what the demonstrations reach;
// 200 steps of GRPO on 16 prompts × 8 with importance_sampling then reach 0.93 to 0.97 of held-out questions
// if the rate of 1e-3 is kept for the first quarter and falls linearly to a tenth by the end. A constant rate
// ends 0.01 to 0.04 lower and less evenly, as the last steps see few groups with any variance; 2e-3 makes
// forms lock on wrong answers. The optimizer is reset in between (LoadWeights without the optimizer).
//
// The package knows tokens, not text: it must not know about chat, tokenizers, rewards, rollouts or the
// store.
package policy
