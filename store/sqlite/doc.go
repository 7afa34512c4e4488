// Package sqlite is the [store.Driver] that keeps everything in one SQLite file:
// the default, durable without a server to install.
//
// One process serves a file at a time. It writes through one connection, each
// batch of the engine as one transaction, and reads through others, which in
// WAL mode wait for nobody. Because nobody else writes, what batches need most
// (live rollouts, workers, the latest resources) is kept in memory, bounded, and
// is always what the file says.
//
// Sequence ids are handed out from memory within blocks. Deep pages are found by
// counts that are maintained. Large deletions are done bit by bit, so that no
// write is slow.
//
// It must not know any rule of a rollout's life; the engine in package store
// decides, this package keeps and finds.
package sqlite
