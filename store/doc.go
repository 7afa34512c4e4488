// Package store is the engine behind [agl.Store]: the queue, the lifecycle of rollouts
// and attempts, deadlines, sequence ids, waits, wake-ups and retention, written once for
// every database.
//
//	s, err := store.Open(ctx, "sqlite:agl.db", store.Options{})
//
// [Open] takes "sqlite:PATH", "postgres://…" or "memory:". [New] takes any other
// [driver.Driver].
//
// Writes are commands. Commands that arrive while a batch is running form the next batch: one Load of everything they
// name, then the rules of lifecycle.go for each command in memory, one Apply of all changes, and the answers. Reads
// go straight to the driver.
//
// The package must not know how a driver stores anything, nor anything about networks or metrics (an [Observer]
// measures).
package store
