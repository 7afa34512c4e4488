package store

import (
	"context"
	"iter"

	"github.com/agl-go/agl"
)

// Database is what an operator does with a database that keeps a store's data,
// besides serving it: each SQL driver package has one. Its methods work while
// servers use the database unless they say otherwise.
type Database interface {
	// Status says what the database is and holds. It changes nothing, whatever
	// the schema.
	Status(ctx context.Context) (DatabaseStatus, error)
	// Migrate brings the schema to the version that this program knows, creating
	// it when there is none; ErrIllegalState when the database's is newer.
	Migrate(ctx context.Context) (from, to int, err error)
	// Check reads everything, by its checksums too, and reports what is wrong. The
	// error is that the check could not go on, not that it found something.
	Check(ctx context.Context, report func(Problem)) error
	// Vacuum gives free space back; ErrIllegalState where it needs the database
	// for itself and a server has it.
	Vacuum(ctx context.Context) error
	// Backup writes a consistent copy to a new file; ErrUnimplemented where the
	// database has tools of its own for that.
	Backup(ctx context.Context, path string) error
	Exporter
	// Close releases what the others opened.
	Close() error
}

// Exporter is what [Export] reads: a Driver, or a Database beside the servers
// that use it.
type Exporter interface {
	// Export is that of Driver.
	Export(ctx context.Context) iter.Seq2[Record, error]
	// Statistics counts what is stored.
	Statistics(ctx context.Context) (agl.Statistics, error)
}

// DatabaseStatus is what a database is and holds.
type DatabaseStatus struct {
	Name          string // "sqlite" or "postgres", and the engine's version
	Location      string // file or URL, without secrets
	SchemaVersion int    // of the database; 0 when there is no schema
	KnownVersion  int    // the newest that this program knows
	Bytes         int64  // on disk
	FreeBytes     int64  // of those not in use, where the database says so
	InUse         bool   // a server has it open, where that can be told
	Contents      agl.Statistics
}

// Problem is something that a check has found.
type Problem struct {
	// Where names the row or page, such as "span ro-1/at-1/0123456789abcdef".
	Where string
	// What is wrong, and what is lost by it.
	What string
}
