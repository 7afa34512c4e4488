// Package collect finds the rollouts of a store that are ready to be learned from. See
// [agl.Collector] for what it promises.
//
//	c, err := collect.New(collect.Config{Store: engine})
//	batch, err := c.Collect(ctx, agl.CollectParams{Since: saved, Min: 32, MaxWait: time.Minute})
//
// A [Collector] keeps a log in the store's documents: an entry for each rollout when it
// becomes ready, and one for each time that rewards came later. It follows the store's
// events to write the log, and reads all finished rollouts again if it has missed events.
// The log's head is one document that every write replaces by compare-and-set, with the
// position in the events, so that any number of collectors on one database write one log.
// Nothing is written unless somebody collects.
//
// The package must not know who learns, nor how.
package collect
