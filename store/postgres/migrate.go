package postgres

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/agl-go/agl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// migrations are numbered SQL files, each applied once, in order. What is
// released is never changed.
//
//go:embed migration/*.sql
var migrations embed.FS

// migration is one step of the schema.
type migration struct {
	version int
	sql     string
}

// known returns the migrations in their order.
func known() ([]migration, error) {
	names, err := fs.Glob(migrations, "migration/*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	out := make([]migration, len(names))
	for i, name := range names {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "migration/"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, agl.Errorf(agl.CodeInternal, "postgres: migration %s is not number %d", name, i+1)
		}
		sql, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out[i] = migration{version, string(sql)}
	}
	return out, nil
}

// migrationLock is the number of the advisory lock under which schemas change.
const migrationLock = 0x61676c // "agl"

// migrate brings the schema up to date.
func migrate(ctx context.Context, config *pgxpool.Config) (from, to int, err error) {
	steps, err := known()
	if err != nil {
		return 0, 0, err
	}
	conn, err := pgx.ConnectConfig(ctx, connConfig(config))
	if err != nil {
		return 0, 0, failed(ctx, "connect to "+location(config.ConnString()), err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	from, err = schemaVersion(ctx, conn)
	switch {
	case err != nil:
		return 0, 0, failed(ctx, "read the schema's version", err)
	case from > len(steps):
		return from, 0, agl.Errorf(agl.CodeIllegalState,
			"postgres: the database has schema version %d, this program knows only up to %d: use a newer agl", from, len(steps))
	case from == len(steps):
		return from, from, nil
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Others may be at it; and a step takes as long as it takes.
		_, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(`+
			strconv.Itoa(migrationLock)+`)`, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		if config.ConnConfig.RuntimeParams["search_path"] == schema {
			// IF NOT EXISTS would need the right to create one even if there is one.
			_, err := tx.Exec(ctx, `DO $$ BEGIN IF to_regnamespace('`+schema+`') IS NULL THEN CREATE SCHEMA `+schema+`; END IF; END $$`)
			if err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS schema_version (version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())`)
		if err != nil {
			return err
		}
		if from, err = schemaVersion(ctx, tx); err != nil {
			return err
		}
		for _, step := range steps[min(from, len(steps)):] {
			if _, err := tx.Exec(ctx, step.sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return agl.Errorf(agl.CodeInternal, "postgres: migration %d: %w", step.version, err)
			}
			if _, err := tx.Exec(ctx, `INSERT INTO schema_version (version) VALUES ($1)`, step.version); err != nil {
				return err
			}
		}
		return nil
	})
	return from, len(steps), failed(ctx, "migrate the schema", err)
}

// queryer is a connection or a transaction.
type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// codeUndefinedTable is PostgreSQL's code for a table that does not exist.
const codeUndefinedTable = "42P01"

// schemaVersion returns the version of a database's schema, 0 when there is none.
func schemaVersion(ctx context.Context, q queryer) (version int, err error) {
	var there bool
	if err := q.QueryRow(ctx, `SELECT to_regclass('schema_version') IS NOT NULL`).Scan(&there); err != nil || !there {
		return 0, err
	}
	err = q.QueryRow(ctx, `SELECT COALESCE(max(version), 0) FROM schema_version`).Scan(&version)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == codeUndefinedTable {
		return 0, nil
	}
	return version, err
}
