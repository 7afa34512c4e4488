package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// removable selects what retention may delete of a kind: id, time, size (0 for rollouts, see Oldest) and the order of insertion.
func removable(kind driver.Removable) string {
	const finished = `('failed', 'succeeded', 'cancelled')`
	switch kind {
	case driver.RemovableSpans:
		return `SELECT rollout_id AS id, end_time AS at, 0::bigint AS bytes, ordinal AS n FROM rollouts r
			WHERE EXISTS (SELECT FROM attempts a WHERE a.rollout_id = r.rollout_id AND a.span_bytes > 0) AND status IN ` + finished
	case driver.RemovableRollouts:
		return `SELECT rollout_id AS id, end_time AS at, 0::bigint AS bytes, 0::bigint AS n FROM rollouts WHERE status IN ` + finished
	case driver.RemovableWorkers:
		return `SELECT worker_id AS id, COALESCE(GREATEST(last_heartbeat_time, last_dequeue_time, last_busy_time, last_idle_time), 0) AS at,
			0::bigint AS bytes, 0::bigint AS n FROM workers WHERE status <> 'busy'`
	case driver.RemovableResources:
		return `SELECT resources_id AS id, update_time AS at, 0::bigint AS bytes, 0::bigint AS n FROM resources u
			WHERE resources_id IS DISTINCT FROM (SELECT latest_resources FROM store)
			AND NOT EXISTS (SELECT FROM rollouts r WHERE r.resources_id = u.resources_id AND r.status NOT IN ` + finished + `)`
	case driver.RemovableSequences:
		return `SELECT rollout_id AS id, unknown_since AS at, 0::bigint AS bytes, 0::bigint AS n FROM sequences q
			WHERE unknown_since IS NOT NULL AND NOT EXISTS (SELECT FROM rollouts r WHERE r.rollout_id = q.rollout_id)`
	}
	return ""
}

// Oldest implements driver.Driver.
func (d *Driver) Oldest(ctx context.Context, kind driver.Removable, limit int) (out driver.OldestList, err error) {
	err = d.read(ctx, d.search, "look for what can be removed", func(ctx context.Context, conn *pgx.Conn) error {
		out = driver.OldestList{}
		var queries pgx.Batch
		queries.Queue(snapshot)
		if kind == driver.RemovableSpans {
			queries.Queue(`SELECT COALESCE(sum(span_bytes), 0)::bigint FROM attempts`).QueryRow(func(row pgx.Row) error {
				return row.Scan(&out.SpanBytes)
			})
		}
		queries.Queue(`SELECT count(*) FROM (` + removable(kind) + `) x`).QueryRow(func(row pgx.Row) error { return row.Scan(&out.Count) })
		bytes := `bytes`
		if kind == driver.RemovableSpans || kind == driver.RemovableRollouts { // of the listed ones alone
			bytes = `(SELECT COALESCE(sum(a.span_bytes), 0)::bigint FROM attempts a WHERE a.rollout_id = y.id)`
		}
		queries.Queue(`SELECT id, at, `+bytes+` FROM (SELECT id, at, bytes, n FROM (`+removable(kind)+`) x ORDER BY at, n LIMIT $1) y ORDER BY at, n`, limit).Query(func(rows pgx.Rows) error {
			return collect(rows, nil, func(r *row) error {
				out.Items = append(out.Items, driver.Oldest{ID: r.text(), Time: agl.Timestamp(r.nullTime().V), SpanBytes: r.int8()})
				return nil
			})
		})
		queries.Queue(`COMMIT`)
		return sent(ctx, conn, &queries)
	})
	return out, err
}
