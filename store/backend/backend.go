package backend

import (
	"context"
	"log/slog"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/postgres"
	"github.com/agl-go/agl/store/sqlite"
)

// Config says which database to open, and how. Its zero value is the default
// one.
type Config struct {
	// DSN names the database; the zero value is [Default].
	DSN DSN
	// Memory is heeded by memory: alone, Sync by sqlite: alone.
	Memory memory.Config
	Sync   sqlite.Sync
	// Logger gets what an operator should know; nil discards it.
	Logger *slog.Logger
}

func (c Config) withDefaults() (_ Config, err error) {
	if c.DSN == (DSN{}) {
		c.DSN, err = Parse(Default)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, err
}

// Open opens a database to serve it, and brings its schema up to date. The
// error names the database.
func Open(ctx context.Context, config Config) (store.Driver, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	switch config.DSN.Kind {
	case Memory:
		return memory.New(config.Memory)
	case SQLite:
		return sqlite.Open(ctx, sqlite.Config{Path: config.DSN.Path, Sync: config.Sync, Logger: config.Logger})
	case Postgres:
		return postgres.Open(ctx, postgres.Config{URL: config.DSN.URL, Logger: config.Logger})
	}
	return nil, agl.Errorf(agl.CodeInvalid, "backend: DSN: got kind %q", config.DSN.Kind)
}

// OpenDatabase opens a database to look after it. Nothing is made or migrated by
// that. The error names the database.
func OpenDatabase(ctx context.Context, dsn DSN) (store.Database, error) {
	switch dsn.Kind {
	case SQLite:
		return sqlite.OpenDatabase(ctx, dsn.Path)
	case Postgres:
		return postgres.OpenDatabase(ctx, dsn.URL)
	case Memory:
	}
	return nil, agl.Errorf(agl.CodeInvalid, "%s is kept nowhere: there is no database to look after", dsn)
}
