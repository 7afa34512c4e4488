package postgres

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"

	"github.com/agl-go/agl/store/internal/sqlstore"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

// Database implements driver.Database. Create it with [OpenDatabase].
type Database struct {
	config *pgxpool.Config
	conn   *pgx.Conn
	close  func() error
}

var _ driver.Database = (*Database)(nil)

// operatorName is the application_name of the connections of operators.
const operatorName = "agl db"

// OpenDatabase connects to a database of any schema version and changes nothing. The
// URL is that of [Config].
func OpenDatabase(ctx context.Context, url string) (*Database, error) {
	config := Config{URL: url}.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	parsed, err := parse(config)
	if err != nil {
		return nil, err
	}
	params := parsed.ConnConfig.RuntimeParams
	params["application_name"] = operatorName
	// No limit: these commands may read everything.
	params["statement_timeout"] = "0"
	params["idle_in_transaction_session_timeout"] = "0"
	conn, err := connectChecked(ctx, parsed)
	if err != nil {
		return nil, err
	}
	lasting := context.WithoutCancel(ctx)
	return &Database{parsed, conn, func() error {
		ctx, cancel := context.WithTimeout(lasting, answerSlack)
		defer cancel()
		return conn.Close(ctx)
	}}, nil
}

// Close implements driver.Database.
func (d *Database) Close() error { return d.close() }

// Status implements driver.Database.
func (d *Database) Status(ctx context.Context) (driver.DatabaseStatus, error) {
	out := driver.DatabaseStatus{Location: location(d.config.ConnString())}
	steps, err := known()
	if err != nil {
		return out, err
	}
	out.KnownVersion = len(steps)
	if out.SchemaVersion, err = schemaVersion(ctx, d.conn); err != nil {
		return out, failed(ctx, "read the schema's version", err)
	}
	err = d.conn.QueryRow(ctx, `SELECT 'postgres ' || split_part(current_setting('server_version'), ' ', 1),
			COALESCE((SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
				WHERE c.relnamespace = to_regnamespace(current_schema()) AND c.relkind = 'r'), 0)::bigint,
			EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = `+nameInSchema+`)`).
		Scan(&out.Name, &out.Bytes, &out.InUse)
	if err == nil && out.SchemaVersion > 0 && out.SchemaVersion <= out.KnownVersion {
		out.Contents.Name = "postgres"
		err = statistics(ctx, d.conn, &out.Contents)
	}
	if err == nil && out.SchemaVersion == out.KnownVersion {
		// driver.UnfinishedImport
		err = d.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM documents WHERE kind = 'import' AND id = 'unfinished')`).Scan(&out.PartlyFilled)
	}
	return out, failed(ctx, "read the status", err)
}

// Migrate implements driver.Database.
func (d *Database) Migrate(ctx context.Context) (from, to int, err error) {
	return migrate(ctx, d.config, slog.Default())
}

// Vacuum implements driver.Database. No server may run. Autovacuum makes space
// reusable, but does not return it.
func (d *Database) Vacuum(ctx context.Context) error {
	status, err := d.Status(ctx)
	if err != nil {
		return err
	}
	if status.InUse {
		return agl.Errorf(agl.CodeIllegalState, "postgres: a server uses %s: stop it first, since giving space back locks every table", status.Location)
	}
	var tables []string
	rows, err := d.conn.Query(ctx, `SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1`)
	err = collect(rows, err, func(r *row) error {
		tables = append(tables, r.text())
		return nil
	})
	for _, table := range tables {
		if err == nil {
			_, err = d.conn.Exec(ctx, `VACUUM (FULL, ANALYZE) `+pgx.Identifier{table}.Sanitize())
		}
	}
	return failed(ctx, "vacuum", err)
}

// Backup implements driver.Database.
func (d *Database) Backup(context.Context, string) error {
	return agl.Errorf(agl.CodeUnimplemented,
		"postgres: use the database's own tools, which back up while servers run: pg_dump --format=custom --file=FILE %s, and pg_restore; or agl db export",
		location(d.config.ConnString()))
}

// indexes are the names of all indexes of the schema.
const indexes = `attempts_live attempts_pkey documents_pkey documents_series event_counter_pkey events_pkey idempotency_by_time idempotency_pkey ` +
	`resources_pkey rollouts_by_ordinal rollouts_by_reward rollouts_by_run rollouts_by_start rollouts_live rollouts_pkey rollouts_queued ` +
	`schema_version_pkey sequences_pkey sequences_unknown spans_in_order spans_pkey store_pkey workers_pkey`

// checks returns queries for violations of the database's invariants. Their columns are the
// place, and what is wrong there.
func checks() []string {
	return []string{
		`SELECT 'rollout ' || rollout_id, 'it is ' || status || ', but its place in the queue is ' || COALESCE(place::text, 'null')
			FROM rollouts WHERE (place IS NULL) = (status IN ('queuing', 'requeuing'))`,
		`SELECT 'rollout ' || r.rollout_id, 'it has ' || a.n || ' attempts, but says ' || r.attempts
			FROM rollouts r CROSS JOIN LATERAL (SELECT count(*) AS n FROM attempts a WHERE a.rollout_id = r.rollout_id) a WHERE a.n <> r.attempts`,
		`SELECT 'attempt ' || a.rollout_id || '/' || a.attempt_id, 'its rollout is gone'
			FROM attempts a WHERE NOT EXISTS (SELECT FROM rollouts r WHERE r.rollout_id = a.rollout_id)`,
		`SELECT 'attempt ' || a.rollout_id || '/' || a.attempt_id, 'it has ' || COALESCE(s.n, 0) || ' spans, but says ' || a.span_count
			FROM attempts a LEFT JOIN (SELECT rollout_id, attempt_id, count(*) AS n FROM spans GROUP BY 1, 2) s USING (rollout_id, attempt_id)
			WHERE COALESCE(s.n, 0) <> a.span_count`,
		`SELECT 'span ' || s.rollout_id || '/' || s.attempt_id || '/' || s.span_id, 'the span that it continues is missing; the span is lost'
			FROM spans s JOIN rollouts r USING (rollout_id) WHERE s.base IS NOT NULL AND NOT r.evicted AND NOT EXISTS (SELECT FROM spans b
				WHERE b.attempt_id = s.attempt_id AND b.span_id = s.base AND b.rollout_id = s.rollout_id AND b.ordinal < s.ordinal)`,
		`SELECT 'rollout ' || s.rollout_id, 'spans of attempt ' || s.attempt_id || ' have no attempt'
			FROM (SELECT DISTINCT rollout_id, attempt_id FROM spans) s
			WHERE NOT EXISTS (SELECT FROM attempts a WHERE a.rollout_id = s.rollout_id AND a.attempt_id = s.attempt_id)`,
		`SELECT 'rollout ' || s.rollout_id, 'a span has sequence id ' || s.n || ', the last one given is ' || COALESCE(q.last::text, 'none')
			FROM (SELECT rollout_id, max(sequence_id) AS n FROM spans GROUP BY 1) s LEFT JOIN sequences q USING (rollout_id)
			WHERE s.n > 0 AND s.n > COALESCE(q.last, 0)
			AND NOT EXISTS (SELECT FROM documents WHERE kind = 'import' AND id = 'unfinished')`, // in an export, sequence ids come after all spans
		`SELECT 'resources ' || s.latest_resources, 'they are the latest, but do not exist'
			FROM store s WHERE s.latest_resources IS NOT NULL AND NOT EXISTS (SELECT FROM resources u WHERE u.resources_id = s.latest_resources)`,
		`SELECT 'table store', 'its row is missing, as after a restore that failed; restore the backup while no server runs'
			WHERE NOT EXISTS (SELECT FROM store)`,
		`SELECT 'table event_counter', 'its row is missing, as after a restore that failed; restore the backup while no server runs'
			WHERE NOT EXISTS (SELECT FROM event_counter)`,
		`SELECT 'index ' || v.name, 'it is missing, as after a restore that failed: restore the backup while no server runs; if somebody dropped it, create it again'
			FROM unnest(string_to_array('` + indexes + `', ' ')) v (name) WHERE to_regclass(v.name) IS NULL`,
		// driver.UnfinishedImport
		`SELECT 'import ' || id, 'the database holds a part of an export; run agl db import with that export again'
			FROM documents WHERE kind = 'import' AND id = 'unfinished'`,
		`SELECT 'event log', 'its newest event is ' || e.n || ', but the last number given is ' || c.last
			FROM (SELECT max(id) AS n FROM events) e, event_counter c WHERE e.n > c.last`,
	}
}

// Check implements driver.Database. It reads one snapshot. PostgreSQL's own files are
// checked by pg_amcheck and by its data checksums.
func (d *Database) Check(ctx context.Context, report func(driver.Problem)) error {
	if err := d.current(ctx); err != nil {
		return failed(ctx, "check", err)
	}
	err := pgx.BeginTxFunc(ctx, d.conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		for _, sql := range checks() {
			rows, err := tx.Query(ctx, sql)
			err = collect(rows, err, func(r *row) error {
				report(driver.Problem{Where: r.text(), What: r.text()})
				return nil
			})
			if err != nil {
				return err
			}
		}
		return d.checkDocuments(ctx, tx, report)
	})
	return failed(ctx, "check", err)
}

// checkJSON checks a document that has no checksum; nil passes.
func checkJSON(where, member string, doc jsontext.Value) error {
	if doc == nil || doc.IsValid(rawjson.Options()) {
		return nil
	}
	return errStored("the %s of %s is not a JSON document", member, where)
}

// checkDocuments reads every document, and compares checksums where there are any.
func (*Database) checkDocuments(ctx context.Context, tx pgx.Tx, report func(driver.Problem)) error {
	for _, part := range []struct {
		sql, lost string
		read      func(*row) (where string, err error)
	}{
		{`SELECT ` + rolloutColumns + ` FROM rollouts r ORDER BY r.ordinal`, "the rollout", func(r *row) (string, error) {
			where := "rollout " + string(r.values[0])
			out, err := r.rollout()
			if err == nil && !out.Status.Valid() {
				err = errStored("the status of %s is %q", where, out.Status)
			}
			if err == nil {
				err = errors.Join(checkJSON(where, "input", out.Input), checkJSON(where, "metadata", out.Metadata))
			}
			return where, err
		}},
		{`SELECT ` + attemptColumns + ` FROM attempts a ORDER BY a.ordinal`, "what it says", func(r *row) (string, error) {
			where := "attempt " + string(r.values[0]) + "/" + string(r.values[1])
			a := r.attempt()
			if !a.Status.Valid() {
				return where, errStored("the status of %s is %q", where, a.Status)
			}
			return where, checkJSON(where, "metadata", a.Metadata)
		}},
		{`SELECT ` + workerColumns + ` FROM workers w ORDER BY w.ordinal`, "what it says", func(r *row) (string, error) {
			where := "worker " + string(r.values[0])
			w := r.worker()
			if !slices.Contains(agl.WorkerStatuses(), w.Status) {
				return where, errStored("the status of %s is %q", where, w.Status)
			}
			return where, checkJSON(where, "heartbeat_stats", w.HeartbeatStats)
		}},
		{`SELECT ` + resourcesColumns + ` FROM resources u ORDER BY u.ordinal`, "the bundle", func(r *row) (string, error) {
			where := "resources " + string(r.values[0])
			_, err := r.resources()
			return where, err
		}},
		{allDocuments, "the document", checkDocument},
		{`SELECT ` + keyColumns + ` FROM idempotency k`, "that a repeat is recognised", func(r *row) (string, error) {
			where := "idempotency key " + string(r.values[0])
			_, err := r.key()
			return where, err
		}},
		{`SELECT ` + spanColumns + ` FROM spans s ORDER BY s.ordinal`, "the span", func(r *row) (string, error) {
			where := "span " + string(r.values[0]) + "/" + string(r.values[1]) + "/" + string(r.values[2])
			_, err := r.span()
			return where, err
		}},
	} {
		rows, err := tx.Query(ctx, part.sql)
		err = collect(rows, err, func(r *row) error {
			where, err := part.read(r)
			if e, ok := errors.AsType[*agl.Error](err); ok {
				report(driver.Problem{Where: where, What: e.Message + "; lost: " + part.lost})
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Export implements driver.Exporter: one snapshot, while servers run.
func (d *Database) Export(ctx context.Context) iter.Seq2[driver.Record, error] {
	return sqlstore.Export(func(give func(driver.Record) error) error {
		err := d.current(ctx)
		if err == nil {
			err = exportFrom(ctx, d.conn, give)
		}
		return failed(ctx, "export", err)
	})
}

// current refuses every schema version except the one of this program.
func (d *Database) current(ctx context.Context) error {
	version, err := schemaVersion(ctx, d.conn)
	if err != nil {
		return err
	}
	steps, err := known()
	if err == nil && version != len(steps) {
		err = agl.Errorf(agl.CodeIllegalState, "postgres: the database has schema version %d, this needs version %d; see agl db status", version, len(steps))
	}
	return err
}

// Statistics implements driver.Exporter.
func (d *Database) Statistics(ctx context.Context) (agl.Statistics, error) {
	status, err := d.Status(ctx)
	return status.Contents, err
}
