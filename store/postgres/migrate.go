package postgres

import (
	"context"
	"embed"
	"errors"
	"log/slog"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
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

// migrate applies the missing migrations. Servers of an older version stop before it, see [Driver.serve].
func migrate(ctx context.Context, config *pgxpool.Config, log *slog.Logger) (from, to int, err error) {
	steps, err := known()
	if err != nil {
		return 0, 0, err
	}
	conn, err := connectChecked(ctx, config)
	if err != nil {
		return 0, 0, err
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
	from, err = migrateWith(ctx, conn, config.ConnConfig, steps, log)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == codeNoSchema {
		return 0, 0, agl.Errorf(agl.CodeInvalid, "postgres: connect to %s: the schema of search_path=%s does not exist; create it, or leave search_path out for the schema %s",
			location(config.ConnString()), config.ConnConfig.RuntimeParams["search_path"], schema)
	}
	return from, len(steps), failed(ctx, "migrate the schema", err)
}

// migrateWith applies those of the migrations that are missing, when no server of an older version writes.
func migrateWith(ctx context.Context, conn *pgx.Conn, config *pgx.ConnConfig, steps []string, log *slog.Logger) (from int, err error) {
	for {
		err := announce(ctx, conn, len(steps))
		if err == nil {
			from, err = migrateOnce(ctx, conn, config, steps)
		}
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != codeLockNotThere {
			return from, err
		}
		log.WarnContext(ctx, "servers of an older version use the database; its schema is migrated when they have stopped", "from", from, "to", len(steps), "again_in", betweenTries)
		if err := backoff.Sleep(ctx, betweenTries); err != nil {
			return from, err
		}
	}
}

// migrateOnce applies the migrations in one transaction. An error with codeLockNotThere: servers of an older version run.
func migrateOnce(ctx context.Context, conn *pgx.Conn, config *pgx.ConnConfig, steps []string) (from int, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Another server may be applying migrations, and a migration may take long.
		_, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(`+
			strconv.Itoa(migrationLock)+`)`, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		if config.RuntimeParams["search_path"] == schema {
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
		if from == len(steps) {
			return nil
		}
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = `+strconv.FormatInt(lockWait.Milliseconds(), 10)+`; SELECT pg_advisory_xact_lock(`+servingLock+`); SET LOCAL lock_timeout = 0`, pgx.QueryExecModeSimpleProtocol); err != nil {
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
	return from, err
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

// PostgreSQL's codes for a table, and for a schema to make it in, that do not exist.
const (
	codeUndefinedTable = "42P01"
	codeNoSchema       = "3F000"
)

// schemaVersion returns the schema version of a database, 0 if it has no schema.
func schemaVersion(ctx context.Context, q queryer) (version int, err error) {
	var there bool
	var role string
	var forbidden *string
	err = q.QueryRow(ctx, `SELECT to_regclass('schema_version') IS NOT NULL, current_user,
		(SELECT nspname FROM pg_namespace WHERE nspname = split_part(current_setting('search_path'), ',', 1)
			AND NOT has_schema_privilege(oid, 'USAGE') AND current_schema() IS NULL)`).
		Scan(&there, &role, &forbidden)
	switch {
	case err != nil:
		return 0, err
	case !there && forbidden != nil:
		return 0, agl.Errorf(agl.CodeUnavailable,
			"postgres: the role %s needs the right USAGE on the schema %s, and rights on its tables and sequences", role, *forbidden)
	case !there:
		return 0, nil
	}
	err = q.QueryRow(ctx, `SELECT COALESCE(max(version), 0) FROM schema_version`).Scan(&version)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == codeUndefinedTable {
		return 0, nil
	}
	return version, err
}
