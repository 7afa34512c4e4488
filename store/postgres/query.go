package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

// withLatest joins a rollout with its latest attempt.
const withLatest = ` LEFT JOIN LATERAL (SELECT ` + attemptColumns + ` FROM attempts a WHERE a.rollout_id = r.rollout_id
	ORDER BY a.sequence_id DESC, a.ordinal DESC LIMIT 1) a ON true`

func (r *row) attempted() (agl.AttemptedRollout, error) {
	out, err := r.rollout()
	if err != nil {
		return agl.AttemptedRollout{}, err
	}
	return agl.AttemptedRollout{Rollout: *out, Attempt: r.maybeAttempt()}, nil
}

// checkComplete reports errIncomplete while a backup is being restored: what is not found may not be there yet.
func checkComplete(ctx context.Context, conn *pgx.Conn) error {
	missing := errIncomplete
	rows, err := conn.Query(ctx, readStore)
	err = collect(rows, err, func(*row) error {
		missing = nil
		return nil
	})
	return cmp.Or(err, missing)
}

// one reads the row that a query finds. missing is the error if there is none.
func one[T any](ctx context.Context, d *Driver, doing string, missing error, each func(*row) (T, error), query string, args ...any) (out T, err error) {
	err = d.read(ctx, d.keyed, doing, func(ctx context.Context, conn *pgx.Conn) error {
		found := missing
		rows, err := conn.Query(ctx, query, args...)
		err = collect(rows, err, func(r *row) (err error) {
			found = nil
			out, err = each(r)
			return err
		})
		if err == nil && found != nil {
			err = checkComplete(ctx, conn)
		}
		return cmp.Or(err, found)
	})
	return out, err
}

// rolloutsWhere reads rollouts with their latest attempts.
func (d *Driver) rolloutsWhere(ctx context.Context, pool *pgxpool.Pool, doing, from, behind string, args ...any,
) ([]agl.AttemptedRollout, error) {
	var out []agl.AttemptedRollout
	err := d.read(ctx, pool, doing, func(ctx context.Context, conn *pgx.Conn) error {
		out = []agl.AttemptedRollout{}
		rows, err := conn.Query(ctx, `SELECT `+rolloutColumns+`, `+attemptColumns+` FROM `+from+withLatest+behind, args...)
		return collect(rows, err, func(r *row) error {
			attempted, err := r.attempted()
			out = append(out, attempted)
			return err
		})
	})
	return out, err
}

// Rollouts implements driver.Driver.
func (d *Driver) Rollouts(ctx context.Context, ids []string) ([]agl.AttemptedRollout, error) {
	found, err := d.rolloutsWhere(ctx, d.keyed, "read rollouts",
		`unnest($1::text[]) WITH ORDINALITY v (rollout_id, n) JOIN rollouts r USING (rollout_id)`, ` ORDER BY v.n`, texts(ids))
	if err != nil || len(found) == len(ids) {
		return found, err
	}
	// While a backup is being restored, the others are not gone: who waits for them goes on waiting.
	return found, d.read(ctx, d.keyed, "read rollouts", checkComplete)
}

// Live implements driver.Driver.
func (d *Driver) Live(ctx context.Context) ([]agl.AttemptedRollout, error) {
	return d.rolloutsWhere(ctx, d.search, "read live rollouts", `rollouts r`,
		` WHERE r.status IN ('preparing', 'running') AND a.rollout_id IS NOT NULL ORDER BY r.ordinal`)
}

// snapshot begins a transaction in which a page and its total agree.
const snapshot = `BEGIN READ ONLY, ISOLATION LEVEL REPEATABLE READ`

// selection is a statement with its arguments.
type selection struct {
	sql  string
	args []any
}

// search is a query for one page.
type search struct {
	what  string     // the noun, for errors
	guard *selection // if it selects true, the query is refused; may be nil
	page  selection
	total selection
	more  []any // where the further columns of total go
	agl.Paging
}

// searchFor makes a search of one table. total replaces the count for a query without
// filters; nil always counts.
func searchFor(what, columns, from string, q *sqlstore.Query, p agl.Paging, total *selection) *search {
	out := &search{what: what, Paging: p}
	sql, args := q.Page()
	out.page = selection{`SELECT ` + columns + ` FROM ` + from + sql, args}
	sql, args = q.Count()
	out.total = selection{`SELECT count(*) FROM ` + from + sql, args}
	if total != nil && !q.Filtered {
		out.total = *total
	}
	return out
}

// find answers a search in one round trip. It returns refused if the guard is true.
func find[T any](ctx context.Context, d *Driver, s *search, refused error, each func(*row) (T, error)) (agl.Page[T], error) {
	page := agl.Page[T]{Limit: s.Limit, Offset: s.Offset}
	err := d.read(ctx, d.search, "query "+s.what, func(ctx context.Context, conn *pgx.Conn) error {
		page.Items = []T{}
		var queries pgx.Batch
		queries.Queue(snapshot)
		queries.Queue(`SELECT NOT EXISTS (` + readStore + `)`).Query(refuseIf(errIncomplete)) // a part of a list would look like all of it
		if s.guard != nil {
			queries.Queue(s.guard.sql, stored(s.guard.args)...).Query(refuseIf(refused))
		}
		queries.Queue(s.page.sql, stored(s.page.args)...).Query(func(rows pgx.Rows) error {
			return collect(rows, nil, func(r *row) error {
				item, err := each(r)
				page.Items = append(page.Items, item)
				return err
			})
		})
		queries.Queue(s.total.sql, stored(s.total.args)...).QueryRow(func(row pgx.Row) error { return row.Scan(append([]any{&page.Total}, s.more...)...) })
		queries.Queue(`COMMIT`)
		return sent(ctx, conn, &queries)
	})
	if err != nil {
		return agl.Page[T]{}, err
	}
	return page, nil
}

// refuseIf returns err for a query that selects true.
func refuseIf(err error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		return collect(rows, nil, func(r *row) error {
			if r.bool() {
				return err
			}
			return nil
		})
	}
}

// sent sends queries in one round trip. If they fail, it ends the transaction that they
// left open.
func sent(ctx context.Context, conn *pgx.Conn, queries *pgx.Batch) error {
	err := conn.SendBatch(ctx, queries).Close()
	if err != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		_, rollbackErr := conn.Exec(ctx, `ROLLBACK`)
		if rollbackErr != nil {
			return err // the failed rollback has closed the connection
		}
	}
	return err
}

// stored converts arguments to the form of the columns.
func stored(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			out[i] = text(v)
		case []string:
			out[i] = texts(v)
		default:
			out[i] = v
		}
	}
	return out
}

// QueryRollouts implements driver.Driver.
func (d *Driver) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	q := sqlstore.Postgres.Rollouts(p)
	s := searchFor("rollouts", ``, `rollouts r`, &q, p.Paging, nil)
	// Only the rows of the page are joined with their attempts.
	sql, args := q.Page()
	s.page = selection{
		`SELECT ` + rolloutColumns + `, ` + attemptColumns + ` FROM (SELECT r.ordinal, r.reward, ` + rolloutColumns + ` FROM rollouts r` + sql + `) r` + withLatest + q.OrderBy, args,
	}
	return find(ctx, d, s, nil, (*row).attempted)
}

// QueryAttempts implements driver.Driver.
func (d *Driver) QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error) {
	q := sqlstore.Postgres.Attempts(p, sqlstore.Condition{SQL: `a.rollout_id = ?`, Args: []any{p.RolloutID}})
	return find(ctx, d, searchFor("attempts", attemptColumns, `attempts a`, &q, p.Paging, nil), nil,
		func(r *row) (agl.Attempt, error) { return *r.attempt(), nil })
}

// Resources implements driver.Driver.
func (d *Driver) Resources(ctx context.Context, id string) (agl.ResourcesUpdate, error) {
	return one(ctx, d, "read resources", agl.Errorf(agl.CodeNotFound, "Resources %s not found", id), resourcesOf,
		selectResources+` WHERE u.resources_id = $1`, text(id))
}

// LatestResources implements driver.Driver.
func (d *Driver) LatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	return one(ctx, d, "read resources", agl.Errorf(agl.CodeNotFound, "No resources found"), resourcesOf,
		selectResources+` WHERE u.resources_id = (SELECT latest_resources FROM store)`)
}

const selectResources = `SELECT ` + resourcesColumns + ` FROM resources u`

func resourcesOf(r *row) (agl.ResourcesUpdate, error) {
	u, err := r.resources()
	if err != nil {
		return agl.ResourcesUpdate{}, err
	}
	return *u, nil
}

func workerOf(r *row) (agl.Worker, error) { return *r.worker(), nil }

// QueryResources implements driver.Driver.
func (d *Driver) QueryResources(ctx context.Context, p agl.QueryResourcesParams) (agl.Page[agl.ResourcesUpdate], error) {
	q := sqlstore.Postgres.Resources(p)
	return find(ctx, d, searchFor("resources", resourcesColumns, `resources u`, &q, p.Paging, nil), nil, resourcesOf)
}

// Worker implements driver.Driver.
func (d *Driver) Worker(ctx context.Context, id string) (agl.Worker, error) {
	return one(ctx, d, "read a worker", agl.Errorf(agl.CodeNotFound, "Worker %s not found", id), workerOf,
		`SELECT `+workerColumns+` FROM workers w WHERE w.worker_id = $1`, text(id))
}

// QueryWorkers implements driver.Driver.
func (d *Driver) QueryWorkers(ctx context.Context, p agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	q := sqlstore.Postgres.Workers(p)
	return find(ctx, d, searchFor("workers", workerColumns, `workers w`, &q, p.Paging, nil), nil, workerOf)
}

// latestOf selects the id of a rollout's latest attempt.
func latestOf(rolloutID string) string {
	return `(SELECT a.attempt_id FROM attempts a WHERE a.rollout_id = ` + rolloutID + ` ORDER BY a.sequence_id DESC, a.ordinal DESC LIMIT 1)`
}

// storedColumns are the columns of row.stored.
const storedColumns = `s.attempt_id, s.span_id, s.checksum, s.payload, s.base`

func (r *row) stored(rolloutID string) (driver.StoredSpan, error) {
	out := driver.StoredSpan{SpanKey: driver.SpanKey{RolloutID: rolloutID, AttemptID: r.text(), SpanID: r.text()}}
	sum := int32(r.int4())
	if out.Payload = r.json(); checksum(out.Payload) != sum {
		return out, errDamaged(out.SpanKey)
	}
	out.Base = r.nullText().V
	return out, nil
}

// readChains finds each span by the whole primary key; see readSpans for the expression on
// rollout_id.
const readChains = `WITH RECURSIVE chain (id) AS (SELECT v COLLATE "C" FROM unnest($3::text[]) v UNION
		SELECT s.base FROM chain JOIN spans s ON s.attempt_id = $2 AND s.span_id = chain.id AND s.rollout_id || '' = $1 WHERE s.base IS NOT NULL)
	SELECT ` + storedColumns + ` FROM chain JOIN spans s ON s.attempt_id = $2 AND s.span_id = chain.id AND s.rollout_id || '' = $1`

// SpanChains implements driver.Driver.
func (d *Driver) SpanChains(ctx context.Context, attempt driver.AttemptKey, ids []string) ([]driver.StoredSpan, error) {
	var out []driver.StoredSpan
	err := d.read(ctx, d.keyed, "read spans", func(ctx context.Context, conn *pgx.Conn) error {
		out = nil
		rows, err := conn.Query(ctx, readChains, text(attempt.RolloutID), text(attempt.AttemptID), texts(ids))
		return collect(rows, err, func(r *row) error {
			s, err := r.stored(attempt.RolloutID)
			out = append(out, s)
			return err
		})
	})
	return out, err
}
