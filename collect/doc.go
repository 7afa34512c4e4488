// Package collect hands out the rollouts of a store that are ready to be learned from. [agl.Collector] says what it
// guarantees.
//
//	c, err := collect.New(collect.Config{Store: engine})
//	batch, err := c.Collect(ctx, agl.CollectParams{Since: saved, Min: 32, MaxWait: time.Minute})
//
// A [Collector] keeps a log in the store's documents: an entry for each rollout when it becomes ready, and one each
// time that more rewards arrive later. It follows the store's events to write the log, and reads all finished
// rollouts again if it has missed events. The head of the log is one document, with the position in the events, that
// every write replaces by compare-and-set, so that any number of collectors on one database write one log. Nothing is
// written unless somebody collects.
//
// The package must not know who learns from the rollouts, nor how.
package collect
