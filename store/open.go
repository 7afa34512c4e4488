package store

import (
	"cmp"
	"context"
	"errors"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/postgres"
	"github.com/agl-go/agl/store/sqlite"
)

// Options say how [Open] opens a store. The zero value is usable.
type Options struct {
	// Config configures the engine; its Driver is ignored. Its Logger is also used by a driver that has none of its
	// own.
	Config
	// Lifetimes apply to the driver; those in its own Config are ignored.
	driver.Lifetimes
	// Memory, SQLite and Postgres configure the driver that the DSN names; the others are ignored, and so are
	// SQLite.Path and Postgres.URL.
	Memory   memory.Config
	SQLite   sqlite.Config
	Postgres postgres.Config
}

// Open opens the store that a DSN names, see [ParseDSN], and brings the schema of
// its database up to date. Errors name the database, without its secrets.
func Open(ctx context.Context, dsn string, options Options) (*Store, error) {
	d, err := OpenDriver(ctx, dsn, options)
	if err != nil {
		return nil, err
	}
	options.Driver = d
	_, inMemory := d.(*memory.Driver)
	options.notesClock = !inMemory
	s, err := New(ctx, options.Config)
	if err != nil {
		return nil, errors.Join(err, d.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// OpenDriver is Open without the engine, for an import.
func OpenDriver(ctx context.Context, dsn string, options Options) (driver.Driver, error) {
	name, err := ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	switch name.Kind {
	case Memory:
		config := options.Memory
		config.Lifetimes = options.Lifetimes
		return memory.New(config)
	case SQLite:
		config := options.SQLite
		config.Path, config.Lifetimes = name.Path, options.Lifetimes
		config.Logger = cmp.Or(config.Logger, options.Logger)
		return sqlite.Open(ctx, config)
	case Postgres:
		config := options.Postgres
		config.URL, config.Lifetimes = name.URL, options.Lifetimes
		config.Logger = cmp.Or(config.Logger, options.Logger)
		return postgres.Open(ctx, config)
	}
	return nil, agl.Errorf(agl.CodeInternal, "store: no driver for %s", name)
}

// OpenDatabase opens a database to inspect or maintain it. It neither creates nor migrates anything. A memory store
// has no database: ErrInvalid.
func OpenDatabase(ctx context.Context, dsn string) (driver.Database, error) {
	name, err := ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	switch name.Kind {
	case SQLite:
		return sqlite.OpenDatabase(ctx, name.Path)
	case Postgres:
		return postgres.OpenDatabase(ctx, name.URL)
	case Memory:
	}
	return nil, agl.Errorf(agl.CodeInvalid, "%s is kept nowhere: there is no database to maintain", name)
}
