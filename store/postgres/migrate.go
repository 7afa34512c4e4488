package postgres

import (
	"context"
	"embed"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

// migrations are numbered SQL files, each applied once, in order. A released file never
// changes.
//
//go:embed migration/*.sql
var migrations embed.FS

func known() ([]string, error) { return sqlstore.Migrations(migrations) }

// migrationLock is the advisory lock under which the schema changes.
const migrationLock = 0x61676c // "agl"

// migrate applies the missing migrations.
func migrate(ctx context.Context, config *pgxpool.Config) (from, to int, err error) {
	steps, err := known()
	if err != nil {
		return 0, 0, err
	}
	conn, err := connect(ctx, config.ConnConfig)
	if err != nil {
		return 0, 0, failed(ctx, "connect to "+location(config.ConnString()), err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	switch err := checkPooler(ctx, config.ConnConfig, conn); {
	case errors.Is(err, errPooler):
		return 0, 0, agl.Errorf(agl.CodeInvalid, "postgres: connect to %s: %w", location(config.ConnString()), err)
	case err != nil:
		return 0, 0, failed(ctx, "connect to "+location(config.ConnString()), err)
	}
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
		// Another server may be applying migrations, and a migration may take long.
		_, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(`+
			strconv.Itoa(migrationLock)+`)`, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		if config.ConnConfig.RuntimeParams["search_path"] == schema {
			// CREATE SCHEMA IF NOT EXISTS needs the right to create one even if it exists.
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
		for version := from + 1; version <= len(steps); version++ {
			if _, err := tx.Exec(ctx, steps[version-1], pgx.QueryExecModeSimpleProtocol); err != nil {
				return agl.Errorf(agl.CodeInternal, "postgres: migration %d: %w", version, err)
			}
			if version == labelsVersion {
				if err := labelAll(ctx, tx); err != nil {
					return agl.Errorf(agl.CodeInternal, "postgres: migration %d: %w", version, err)
				}
			}
			if _, err := tx.Exec(ctx, `INSERT INTO schema_version (version) VALUES ($1)`, version); err != nil {
				return err
			}
		}
		return nil
	})
	return from, len(steps), failed(ctx, "migrate the schema", err)
}

// labelsVersion is the first schema version with labels.
const labelsVersion = 5

// labelAll writes the labels of the rollouts that an earlier version has stored, a few thousand at a time.
func labelAll(ctx context.Context, tx pgx.Tx) error {
	const most = 2000
	for last := int64(-1); ; {
		rows, err := tx.Query(ctx, `SELECT ordinal, metadata FROM rollouts WHERE ordinal > $1 AND metadata IS NOT NULL ORDER BY ordinal LIMIT $2`, last, most)
		if err != nil {
			return err
		}
		var ordinals []int64
		var runs, steps []*string
		var labels []string
		var metadata []byte
		_, err = pgx.ForEachRow(rows, []any{&last, &metadata}, func() error {
			l := driver.LabelsOf(metadata)
			ordinals, labels = append(ordinals, last), append(labels, text(l.Text))
			runs, steps = append(runs, nullable(l.Run)), append(steps, nullable(l.Step))
			return nil
		})
		if err != nil || len(ordinals) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE rollouts r SET run = v.run, step = v.step, labels = v.labels
			FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[]) v (ordinal, run, step, labels) WHERE r.ordinal = v.ordinal`, ordinals, runs, steps, labels)
		if err != nil {
			return err
		}
	}
}

// nullable returns a text as an argument of a statement.
func nullable(s agl.Null[string]) *string {
	if !s.Valid {
		return nil
	}
	out := text(s.V)
	return &out
}

// queryer is a connection or a transaction.
type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// codeUndefinedTable is PostgreSQL's code for a table that does not exist.
const codeUndefinedTable = "42P01"

// schemaVersion returns the schema version of a database, 0 if it has no schema.
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
