// Package sqlite is the [driver.Driver] that keeps everything in one SQLite file. It is
// the default: durable, with no server to install.
//
//	d, err := sqlite.Open(ctx, sqlite.Config{Path: "agl.db"})
//	s, err := store.New(ctx, store.Config{Driver: d})
//
// One process serves a file at a time. It writes through one connection, each batch of
// the engine as one transaction, and reads through others, which in WAL mode never wait
// for the writer. Nothing else writes the file, so a bounded cache of rollouts, workers,
// resources and recent spans always agrees with it.
//
// Sequence ids are given out from memory in blocks, so that most need no write. A deep
// page is found by the counts of buckets of 1,024 rows. Large deletions are spread over
// many commits, so that no write is slow.
//
// It must not know any rule of a rollout's lifecycle: the engine in package store
// decides.
package sqlite
