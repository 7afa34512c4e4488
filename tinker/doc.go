// Package tinker holds the Go form of the Tinker training protocol: the few interfaces through which an
// algorithm drives a weights optimizer (create a model, accumulate gradients, step, publish, checkpoint)
// and through which anybody samples tokens from what was published.
//
// The interfaces mirror the protocol of Thinking Machines' Tinker SDK (package tinker, Apache-2.0,
// https://tinker-docs.thinkingmachines.ai), which several independent servers speak, so that one algorithm
// can train on any of them. Two kinds of implementation are meant: in-process (package policy) and HTTP.
//
// The package knows tokens and tensors only. It must not know text, chat templates (that is tinker/chat),
// rewards, rollouts, the store, or how any engine works inside.
//
// # Order
//
// The training calls of one model form a sequence: an implementation runs them in the order in which they
// were made, and a caller that wants a definite order waits for one call before it makes the next. Sampling
// clients are independent of that sequence where [Capabilities.ImmutableSnapshots] is set.
package tinker
