package driver

import (
	"context"

	"github.com/agl-go/agl"
)

// Database is what an operator can do with a store's database besides serving it. Each SQL driver has one. Its
// methods work while servers use the database, unless they say otherwise.
type Database interface {
	// Status describes the database. It changes nothing, whatever the schema.
	Status(ctx context.Context) (DatabaseStatus, error)
	// Migrate brings the schema to the version that this program knows, and creates it if there is none;
	// ErrIllegalState if the database's version is newer.
	Migrate(ctx context.Context) (from, to int, err error)
	// Check reads everything, verifies checksums and consistency, and reports what is wrong. An error means that the
	// check could not continue, not that it found something.
	Check(ctx context.Context, report func(Problem)) error
	// Vacuum returns free space to the system; ErrIllegalState where that needs
	// exclusive use and a server uses the database.
	Vacuum(ctx context.Context) error
	// Backup writes a consistent copy to a new file; ErrUnimplemented where the
	// database has its own tools for that.
	Backup(ctx context.Context, path string) error
	// Close releases what the other methods opened.
	Close() error

	Exporter
}

// DatabaseStatus describes a database.
type DatabaseStatus struct {
	Name          string // "sqlite" or "postgres", and the database's version
	Location      string // file or URL, without secrets
	SchemaVersion int    // of the database; 0 when there is no schema
	KnownVersion  int    // the newest that this program knows
	Bytes         int64  // on disk
	FreeBytes     int64  // the unused part of Bytes, where the database reports it
	InUse         bool   // a server has it open, where that can be determined
	Contents      agl.Statistics
	PartlyFilled  bool // an import into it was interrupted; see [UnfinishedImport]
}

// Problem is a finding of a check.
type Problem struct {
	// Where names the row or page, such as "span ro-1/at-1/0123456789abcdef".
	Where string
	// What is wrong, and what is lost by it.
	What string
}
