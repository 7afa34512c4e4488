// Package store is the engine behind [agl.Store]: the queue, the life of
// rollouts and attempts, deadlines, sequence ids, waits and wake-ups, written
// once for every database.
//
// Writes are commands. Commands that arrive while others are being worked on
// form a batch: one Load of everything they name, the rules of lifecycle.go for
// each in memory, one Apply with all changes, then the answers. Reads go
// straight to the driver.
//
// The package must not know how anything is stored (that is a [Driver]), sent
// over a network, or measured (that is an [Observer]).
package store
