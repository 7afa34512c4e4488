package postgres

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/jackc/pgx/v5"
)

// eventID names an event of this database. An id of another one, a copy
// included, is not taken for one of its own.
func eventID(identity string, number int64) string {
	return identity + "-" + strconv.FormatInt(number, 10)
}

// eventNumber is the reverse; ok is false for ids that are not of this log.
func eventNumber(identity, id string) (number int64, ok bool) {
	digits, found := strings.CutPrefix(id, identity+"-")
	number, err := strconv.ParseInt(digits, 10, 64)
	return number, found && err == nil
}

// Events implements store.Driver.
func (d *Driver) Events(ctx context.Context, after string, limit int) (out store.EventList, err error) {
	seen, ours := eventNumber(d.identity, after)
	err = d.read(ctx, d.keyed, "read events", func(ctx context.Context, conn *pgx.Conn) error {
		out = store.EventList{}
		var batch pgx.Batch
		if ours {
			batch.Queue(`SELECT id, kind, rollout_id, attempt_id, resources_id, worker_id, status FROM events
				WHERE id > $1 ORDER BY id LIMIT $2`, seen, limit).Query(func(rows pgx.Rows) error {
				return collect(rows, nil, func(r *row) error {
					out.Events = append(out.Events, r.event(d.identity))
					return nil
				})
			})
		}
		var floor, last int64
		// What was forgotten before it could be read shows in the floor, which comes
		// after it.
		batch.Queue(`SELECT s.event_floor, c.last FROM store s, event_counter c`).QueryRow(func(row pgx.Row) error {
			return row.Scan(&floor, &last)
		})
		if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
		out.Last = eventID(d.identity, last)
		if after != "" && (!ours || seen < floor || seen > last) {
			out.Events, out.Reset = nil, true
		}
		return nil
	})
	return out, err
}

// forgetEvery is how often what is too old is removed.
const forgetEvery = 30 * time.Second

// forget removes what is too old, until ctx ends.
func (d *Driver) forget(ctx context.Context) {
	ticker := time.NewTicker(forgetEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := agl.Timestamp(math.Float64frombits(d.lastNow.Load()))
		if now == 0 {
			continue // nothing was written
		}
		if err := d.forgetOld(ctx, now); err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "old events and idempotency keys could not be removed", "error", err)
		}
	}
}

// forgetLock is the number of the advisory lock of the server that forgets.
const forgetLock = migrationLock + 1

var errOther = errors.New("another server is at it")

// forgetOld removes the events and idempotency keys that are too old at a moment,
// unless another server is at it.
func (d *Driver) forgetOld(ctx context.Context, now agl.Timestamp) error {
	bounded, cancel := d.bound(ctx)
	defer cancel()
	err := pgx.BeginFunc(bounded, d.search, func(tx pgx.Tx) error {
		var free bool
		if err := tx.QueryRow(bounded, `SELECT pg_try_advisory_xact_lock($1)`, forgetLock).Scan(&free); err != nil {
			return err
		}
		if !free {
			return errOther
		}
		// Numbers follow time closely enough to stop at the first event that is young.
		var floor int64
		err := tx.QueryRow(bounded, `SELECT GREATEST(s.event_floor, c.last - $1, COALESCE(
				(SELECT e.id - 1 FROM events e WHERE e.at >= $2 ORDER BY e.id LIMIT 1), c.last))
			FROM store s, event_counter c`, d.config.MaxEvents, float64(now.Add(-d.config.EventTTL))).Scan(&floor)
		if err != nil {
			return err
		}
		deleted, err := tx.Exec(bounded, `DELETE FROM events WHERE id <= $1`, floor)
		if err != nil || deleted.RowsAffected() == 0 {
			return err
		}
		_, err = tx.Exec(bounded, `UPDATE store SET event_floor = $1`, floor)
		return err
	})
	if errors.Is(err, errOther) {
		return nil
	}
	if err == nil {
		// By itself, so that it holds nothing while it waits for a batch.
		_, err = d.search.Exec(bounded, `DELETE FROM idempotency WHERE create_time < $1`, float64(now.Add(-d.config.IdempotencyTTL)))
	}
	return failed(ctx, "forget", err)
}
