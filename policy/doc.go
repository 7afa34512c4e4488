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
// The package knows tokens, not text: it must not know about chat, tokenizers, rewards, rollouts or the
// store.
package policy
