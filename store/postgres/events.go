package postgres

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/store/driver"
)

// Events implements driver.Driver.
func (d *Driver) Events(ctx context.Context, after string, limit int) (out driver.EventList, err error) {
	seen, err := strconv.ParseInt(after[strings.LastIndexByte(after, '-')+1:], 10, 64)
	if err != nil {
		seen = math.MaxInt64
	}
	err = d.read(ctx, d.keyed, "read events", func(ctx context.Context, conn *pgx.Conn) error {
		out = driver.EventList{}
		// The identity distinguishes this database from copies of it, and the table from one that a backup has put in its place
		// while the server runs: the numbers after the backup are given a second time.
		identity := ""
		var queries pgx.Batch
		queries.Queue(`SELECT s.identity || '.' || d.oid || '.' || to_regclass('events')::oid FROM store s, pg_database d WHERE d.datname = current_database()`).
			QueryRow(func(row pgx.Row) error { return row.Scan(&identity) })
		queries.Queue(`SELECT id, kind, rollout_id, attempt_id, resources_id, worker_id, status, document FROM events
			WHERE id > $1 ORDER BY id LIMIT $2`, seen, limit).Query(func(rows pgx.Rows) error {
			return collect(rows, nil, func(r *row) error {
				out.Events = append(out.Events, r.event(identity))
				return nil
			})
		})
		var floor, last int64
		// The floor is read last, so that it covers all events that were missing above.
		queries.Queue(`SELECT s.event_floor, c.last FROM store s, event_counter c`).QueryRow(func(row pgx.Row) error {
			return row.Scan(&floor, &last)
		})
		if err := conn.SendBatch(ctx, &queries).Close(); err != nil {
			return err
		}
		out.Last = driver.EventID(identity, last)
		if _, ours := driver.EventNumber(identity, after); after != "" && (!ours || seen < floor || seen > last) {
			out.Events, out.Reset = nil, true
		}
		return nil
	})
	return out, err
}

// forgetEvery is the interval at which expired records are deleted.
const forgetEvery = 30 * time.Second

// forget deletes expired records until ctx ends.
func (d *Driver) forget(ctx context.Context) {
	for backoff.Sleep(ctx, forgetEvery) == nil {
		now := agl.Timestamp(math.Float64frombits(d.lastNow.Load()))
		if now == 0 {
			continue // nothing was written
		}
		if err := d.forgetOld(ctx, now); err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "old events and idempotency keys could not be removed", "error", err)
		}
	}
}

// forgetLock is the advisory lock of the server that deletes expired records.
const forgetLock = migrationLock + 1

var errOther = errors.New("another server is deleting expired records")

// forgetMost is the most records that one statement deletes. Many may have expired while no server ran, and a statement that
// deletes all of them would not end before its timeout.
const forgetMost = 10_000

// forgetOld deletes the events and idempotency keys that have expired at now, unless
// another server is doing so.
func (d *Driver) forgetOld(ctx context.Context, now agl.Timestamp) error {
	for {
		more, err := d.forgetSome(ctx, now)
		if errors.Is(err, errOther) {
			return nil
		}
		if err != nil || !more {
			return failed(ctx, "forget", err)
		}
	}
}

// forgetSome deletes up to forgetMost events and as many keys, and reports whether there may be more.
func (d *Driver) forgetSome(ctx context.Context, now agl.Timestamp) (more bool, err error) {
	bounded, cancel := d.config.bound(ctx)
	defer cancel()
	err = pgx.BeginFunc(bounded, d.search, func(tx pgx.Tx) error {
		var free bool
		if err := tx.QueryRow(bounded, `SELECT pg_try_advisory_xact_lock($1)`, forgetLock).Scan(&free); err != nil {
			return err
		}
		if !free {
			return errOther
		}
		// Ids grow with time, so the first event that has not expired ends the range.
		var was, floor int64
		err := tx.QueryRow(bounded, `SELECT s.event_floor, LEAST(s.event_floor + $3, GREATEST(s.event_floor, c.last - $1, COALESCE(
				(SELECT e.id - 1 FROM events e WHERE e.at >= $2 ORDER BY e.id LIMIT 1), c.last)))
			FROM store s, event_counter c`, d.config.MaxEvents, float64(now.Add(-d.config.EventTTL)), forgetMost).Scan(&was, &floor)
		if err != nil || floor == was {
			return err
		}
		more = floor == was+forgetMost
		if _, err := tx.Exec(bounded, `DELETE FROM events WHERE id <= $1`, floor); err != nil {
			return err
		}
		_, err = tx.Exec(bounded, `UPDATE store SET event_floor = $1`, floor)
		return err
	})
	if err != nil {
		return false, err
	}
	// A transaction of its own: it must hold no locks while it waits for a batch. It does not wait for the keys that another
	// server deletes.
	deleted, err := d.search.Exec(bounded, `DELETE FROM idempotency WHERE ctid = ANY(ARRAY(
		SELECT ctid FROM idempotency WHERE create_time < $1 ORDER BY create_time LIMIT $2 FOR UPDATE SKIP LOCKED))`,
		float64(now.Add(-d.config.IdempotencyTTL)), forgetMost)
	return more || deleted.RowsAffected() == forgetMost, err
}
