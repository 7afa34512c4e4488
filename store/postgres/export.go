package postgres

import (
	"context"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

// Statistics implements driver.Driver.
func (d *Driver) Statistics(ctx context.Context) (agl.Statistics, error) {
	out := agl.Statistics{Name: "postgres"}
	err := d.read(ctx, d.search, "count", func(ctx context.Context, conn *pgx.Conn) error { return statistics(ctx, conn, &out) })
	return out, err
}

func statistics(ctx context.Context, q queryer, out *agl.Statistics) error {
	return q.QueryRow(ctx, `SELECT (SELECT count(*) FROM rollouts), a.attempts, a.spans,
			(SELECT count(*) FROM resources), (SELECT count(*) FROM workers), COALESCE((SELECT queue_closed FROM store), false)
		FROM (SELECT count(*) AS attempts, COALESCE(sum(span_count), 0)::bigint AS spans FROM attempts) a`).
		Scan(&out.TotalRollouts, &out.TotalAttempts, &out.TotalSpans, &out.TotalResources, &out.TotalWorkers, &out.QueueClosed)
}

// Queue implements driver.Driver. The order makes PostgreSQL read the index of the queue, whatever it knows of the table.
func (d *Driver) Queue(ctx context.Context, limit int, heard agl.Timestamp) (out driver.QueueCounts, err error) {
	err = d.read(ctx, d.search, "count the queue", func(ctx context.Context, conn *pgx.Conn) error {
		var since *float64
		err := conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM (SELECT FROM rollouts WHERE place IS NOT NULL ORDER BY place LIMIT $1) q),
				(SELECT COALESCE((SELECT a.end_time FROM attempts a WHERE a.rollout_id = r.rollout_id ORDER BY a.sequence_id DESC, a.ordinal DESC LIMIT 1), r.start_time)
					FROM rollouts r WHERE r.place IS NOT NULL ORDER BY r.place LIMIT 1),
				w.idle, w.busy
			FROM (SELECT count(*) FILTER (WHERE status = 'idle') AS idle, count(*) FILTER (WHERE status = 'busy') AS busy FROM workers
				WHERE GREATEST(last_heartbeat_time, last_dequeue_time, last_busy_time, last_idle_time) >= $2) w`, limit, float64(heard)).
			Scan(&out.Queued, &since, &out.Idle, &out.Busy)
		if since != nil {
			out.Since = agl.Some(agl.Timestamp(*since))
		}
		return err
	})
	return out, err
}

// exporter yields the records of one snapshot.
type exporter struct {
	conn *pgx.Conn
	give func(driver.Record) error
}

// exportRollouts is how many rollouts, with their attempts, are read at once. Spans
// are streamed.
const exportRollouts = 200

// Export implements driver.Driver. It holds a connection of its own for as long as the
// consumer takes.
func (d *Driver) Export(ctx context.Context) iter.Seq2[driver.Record, error] {
	return sqlstore.Export(func(give func(driver.Record) error) error {
		return failed(ctx, "export", d.export(ctx, give))
	})
}

func (d *Driver) export(ctx context.Context, give func(driver.Record) error) error {
	// A connection of its own: an export would block one of the pool for long.
	conn, err := connect(ctx, d.search.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return exportFrom(ctx, conn, give)
}

// exportFrom reads one snapshot over a connection that nothing else uses.
func exportFrom(ctx context.Context, conn *pgx.Conn, give func(driver.Record) error) (err error) {
	_, err = conn.Exec(ctx, snapshot+`; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0`,
		pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return err
	}
	defer func() {
		if _, end := conn.Exec(context.WithoutCancel(ctx), `ROLLBACK`); err == nil {
			err = end
		}
	}()
	e := &exporter{conn, give}
	for _, part := range []func(context.Context) error{e.resources, e.workers, e.rollouts, e.sequences, e.documents, e.keys, e.state} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (e *exporter) each(ctx context.Context, sql string, record func(*row) (driver.Record, error)) error {
	rows, err := e.conn.Query(ctx, sql)
	return collect(rows, err, func(r *row) error {
		out, err := record(r)
		if err != nil {
			return err
		}
		return e.give(out)
	})
}

func (e *exporter) resources(ctx context.Context) error {
	return e.each(ctx, `SELECT `+resourcesColumns+` FROM resources u ORDER BY u.ordinal`, func(r *row) (driver.Record, error) {
		u, err := r.resources()
		return driver.Record{Resources: u}, err
	})
}

func (e *exporter) workers(ctx context.Context) error {
	return e.each(ctx, `SELECT `+workerColumns+` FROM workers w ORDER BY w.ordinal`, func(r *row) (driver.Record, error) {
		return driver.Record{Worker: r.worker()}, nil
	})
}

func (e *exporter) sequences(ctx context.Context) error {
	return e.each(ctx, `SELECT rollout_id, last FROM sequences ORDER BY rollout_id`, func(r *row) (driver.Record, error) {
		return driver.Record{Sequence: &driver.Sequence{RolloutID: r.text(), Last: r.int8()}}, nil
	})
}

func (e *exporter) keys(ctx context.Context) error {
	return e.each(ctx, `SELECT `+keyColumns+` FROM idempotency k ORDER BY k.create_time, k.scope`, func(r *row) (driver.Record, error) {
		key, err := r.key()
		return driver.Record{Key: &key}, err
	})
}

func (e *exporter) state(ctx context.Context) error {
	return e.each(ctx, `SELECT queue_closed, latest_resources FROM store`, func(r *row) (driver.Record, error) {
		return driver.Record{State: &driver.State{QueueClosed: r.bool(), LatestResources: r.nullText()}}, nil
	})
}

// chunk is a group of rollouts in an export.
type chunk struct {
	ids      []string
	rollouts []*driver.RolloutRecord
	attempts map[string][]*agl.Attempt
}

func (e *exporter) rollouts(ctx context.Context) error {
	last := int64(-1)
	for {
		c := chunk{attempts: map[string][]*agl.Attempt{}}
		rows, err := e.conn.Query(ctx, `SELECT r.ordinal, r.place, r.evicted, `+rolloutColumns+` FROM rollouts r
			WHERE r.ordinal > $1 ORDER BY r.ordinal LIMIT $2`, last, exportRollouts)
		err = collect(rows, err, func(r *row) error {
			last = r.int8()
			record := &driver.RolloutRecord{Place: r.nullInt8(), Evicted: r.bool()}
			rollout, err := r.rollout()
			record.Rollout = rollout
			c.rollouts = append(c.rollouts, record)
			return err
		})
		if err != nil || len(c.rollouts) == 0 {
			return err
		}
		if err := e.chunk(ctx, &c); err != nil {
			return err
		}
	}
}

// chunk gives rollouts, each with its attempts and spans.
func (e *exporter) chunk(ctx context.Context, c *chunk) error {
	for _, r := range c.rollouts {
		c.ids = append(c.ids, text(r.Rollout.RolloutID))
	}
	rows, err := e.conn.Query(ctx, `SELECT `+attemptColumns+` FROM attempts a WHERE a.rollout_id = ANY($1)
		ORDER BY a.rollout_id, a.sequence_id, a.ordinal`, c.ids)
	err = collect(rows, err, func(r *row) error {
		a := r.attempt()
		c.attempts[a.RolloutID] = append(c.attempts[a.RolloutID], a)
		return nil
	})
	if err != nil {
		return err
	}
	next := 0
	// upTo yields the rollouts up to the one whose span comes next.
	upTo := func(id string) error {
		for ; next < len(c.rollouts); next++ {
			r := c.rollouts[next]
			if next > 0 && c.rollouts[next-1].Rollout.RolloutID == id {
				return nil
			}
			if err := e.give(driver.Record{Rollout: r}); err != nil {
				return err
			}
			for _, a := range c.attempts[r.Rollout.RolloutID] {
				if err := e.give(driver.Record{Attempt: a}); err != nil {
					return err
				}
			}
		}
		return nil
	}
	rows, err = e.conn.Query(ctx, `SELECT `+spanColumns+` FROM unnest($1::text[]) WITH ORDINALITY v (rollout_id, n)
		JOIN spans s USING (rollout_id) ORDER BY v.n, s.ordinal`, c.ids)
	err = collect(rows, err, func(r *row) error {
		s, err := r.span()
		if err == nil {
			err = upTo(s.RolloutID)
		}
		if err == nil {
			err = e.give(driver.Record{Span: s})
		}
		return err
	})
	if err != nil {
		return err
	}
	return upTo("")
}

func (e *exporter) documents(ctx context.Context) error {
	return e.each(ctx, allDocuments, func(r *row) (driver.Record, error) {
		out, err := r.document()
		return driver.Record{Document: &out}, err
	})
}
