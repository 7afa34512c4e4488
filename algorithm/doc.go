// Package algorithm holds what the algorithms in the packages below it share: running a batch of rollouts through the store
// and reading them back ([Rollouts]), turning a rollout into a score or a typed reason to leave it out ([Episode.Score]),
// measuring a pass rate ([Evaluate]), and keeping checkpoints ([Checkpoints]).
//
// It knows the store, spans and the training protocol. It must not know any
// learning rule, how agents run, or what serves the model.
package algorithm
