package sqlite

import (
	"bytes"
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

// write writes every changed row once.
func (t *tx) write(ctx context.Context, c *conn) error {
	for _, step := range []func(context.Context, *conn) error{
		t.writeRollouts, t.writeWorkers, t.writeResources, t.writeGhosts, t.writeRetained, t.writeSpans, t.writeBuckets, t.writeDocuments, t.writeKeys, t.writeEvents,
		t.writeGarbage, t.prune, t.state.write,
	} {
		if err := step(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) writeRollouts(ctx context.Context, c *conn) error {
	buckets := map[int64]int64{}
	for _, w := range t.order {
		for _, a := range w.attempts {
			if a.dirty {
				if err := a.write(ctx, c, w); err != nil {
					return err
				}
			}
		}
		switch {
		case w.deleted && w.was == nil:
		case w.deleted:
			buckets[w.row.ordinal>>bucketBits]--
			for _, sql := range []string{
				"DELETE FROM rollouts WHERE ordinal = ?", "DELETE FROM bodies WHERE rollout = ?", "DELETE FROM labels WHERE rollout = ?",
			} {
				if err := c.exec(ctx, sql, w.row.ordinal); err != nil {
					return err
				}
			}
		case w.dirty:
			if w.was == nil {
				buckets[w.row.ordinal>>bucketBits]++
			}
			if err := t.writeRollout(ctx, c, w); err != nil {
				return err
			}
		}
		if err := w.writeReward(ctx, c); err != nil {
			return err
		}
	}
	for bucket, n := range buckets {
		if err := c.exec(ctx, "INSERT INTO rollout_buckets (bucket, rollouts) VALUES (?, ?) ON CONFLICT (bucket) DO UPDATE SET rollouts = rollouts + excluded.rollouts",
			bucket, n); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) writeRollout(ctx context.Context, c *conn, w *rolloutWork) error {
	t.settle(w)
	cur := w.row.cur
	place, mode := orNull(w.row.place, w.row.place != 0), orNull(string(cur.Mode), cur.Mode != agl.ModeNone)
	var latest any
	if w.latest != nil {
		latest = w.latest.row.ordinal
	}
	var err error
	// SQLite writes every index of an assigned column, even if its value is the same. So
	// the statement assigns only what changed.
	switch {
	case w.was == nil:
		err = c.exec(ctx, `INSERT INTO rollouts (rollout_id, start_time, end_time, mode, resources_id, status, place,
			latest, sequence, boot, holds, evicted, ordinal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			w.id, float64(cur.StartTime), nullTime(cur.EndTime), mode, nullText(cur.ResourcesID),
			string(cur.Status), place, latest, nullInt(w.row.sequence), w.row.boot, w.row.holds, w.row.evicted, w.row.ordinal)
	case !w.sameHead():
		err = c.exec(ctx, `UPDATE rollouts SET end_time = ?, mode = ?, resources_id = ?, status = ?, place = ?,
			latest = ?, sequence = ?, boot = ?, holds = ?, evicted = ? WHERE ordinal = ?`,
			nullTime(cur.EndTime), mode, nullText(cur.ResourcesID), string(cur.Status), place,
			latest, nullInt(w.row.sequence), w.row.boot, w.row.holds, w.row.evicted, w.row.ordinal)
	case w.was.cur.Status != cur.Status || w.was.holds != w.row.holds:
		err = c.exec(ctx, "UPDATE rollouts SET status = ?, latest = ?, sequence = ?, boot = ?, holds = ? WHERE ordinal = ?",
			string(cur.Status), latest, nullInt(w.row.sequence), w.row.boot, w.row.holds, w.row.ordinal)
	default:
		err = c.exec(ctx, "UPDATE rollouts SET latest = ?, sequence = ?, boot = ? WHERE ordinal = ?",
			latest, nullInt(w.row.sequence), w.row.boot, w.row.ordinal)
	}
	if err != nil {
		return err
	}
	if w.was != nil && w.was.cur.StartTime != cur.StartTime {
		t.state.startOrdered = false
		if err := c.exec(ctx, "UPDATE rollouts SET start_time = ? WHERE ordinal = ?", float64(cur.StartTime), w.row.ordinal); err != nil {
			return err
		}
	}
	if !w.body {
		return nil
	}
	if w.was == nil || !bytes.Equal(w.was.cur.Metadata, cur.Metadata) {
		if err := writeLabels(ctx, c, w.row.ordinal, cur.Metadata, w.was == nil); err != nil {
			return err
		}
	}
	config := cur.Config.AppendJSON(nil)
	return c.exec(ctx, "INSERT OR REPLACE INTO bodies (rollout, input, config, metadata, crc) VALUES (?, ?, ?, ?, ?)",
		w.row.ordinal, nullBytes(cur.Input), config, nullBytes(cur.Metadata), t.d.codec.sum(cur.Input, config, cur.Metadata))
}

// writeReward writes the reward of the latest attempt, if it or the attempt has changed.
func (w *rolloutWork) writeReward(ctx context.Context, c *conn) error {
	var was, is agl.Null[agl.AttemptReward]
	if w.was != nil && w.was.latest != nil {
		was = w.was.latest.cur.Reward
	}
	if w.latest != nil {
		is = w.latest.row.cur.Reward
	}
	if w.deleted || was.Valid == is.Valid && was.V.Value == is.V.Value {
		return nil
	}
	return c.exec(ctx, "UPDATE rollouts SET reward = ? WHERE ordinal = ?", orNull(is.V.Value, is.Valid), w.row.ordinal)
}

// sameHead reports whether only the status, the latest attempt and the sequence
// changed.
func (w *rolloutWork) sameHead() bool {
	was, cur := w.was.cur, w.row.cur
	return was.EndTime == cur.EndTime && was.Mode == cur.Mode && was.ResourcesID == cur.ResourcesID &&
		w.was.place == w.row.place && w.was.evicted == w.row.evicted
}

// onlyHeard reports whether only the heartbeat, the span counts and the reward changed.
func (a *attemptWork) onlyHeard() bool {
	was, cur := a.was.cur, a.row.cur
	return was.SequenceID == cur.SequenceID && was.StartTime == cur.StartTime && was.EndTime == cur.EndTime && was.Status == cur.Status &&
		was.WorkerID == cur.WorkerID && bytes.Equal(was.Metadata, cur.Metadata) && a.was.stream == a.row.stream
}

func (a *attemptWork) write(ctx context.Context, c *conn, w *rolloutWork) error {
	cur, r := a.row.cur, a.row.cur.Reward
	// The first 6 are the columns of heard, the first 13 those of any update, all of them and the ordinal those of an insert.
	args := []any{
		nullTime(cur.LastHeartbeatTime), a.row.spans, a.row.bytes, orNull(r.V.Value, r.Valid), orNull(r.V.Priority.V, r.V.Priority.Valid),
		orNull(r.V.SequenceID, r.Valid), cur.SequenceID, float64(cur.StartTime), nullTime(cur.EndTime), string(cur.Status),
		nullText(cur.WorkerID), nullBytes(cur.Metadata), a.row.stream, w.row.ordinal, cur.AttemptID,
	}
	const heard = "last_heartbeat_time = ?, spans = ?, span_bytes = ?, reward = ?, reward_priority = ?, reward_sequence = ?"
	switch {
	case a.deleted && a.was == nil:
		return nil
	case a.deleted:
		return c.exec(ctx, "DELETE FROM attempts WHERE ordinal = ?", a.row.ordinal)
	case a.was == nil:
		return c.exec(ctx, `INSERT INTO attempts (last_heartbeat_time, spans, span_bytes, reward, reward_priority, reward_sequence, sequence_id,
			start_time, end_time, status, worker_id, metadata, stream, rollout, attempt_id, ordinal)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, append(args, a.row.ordinal)...)
	case a.onlyHeard():
		return c.exec(ctx, "UPDATE attempts SET "+heard+" WHERE ordinal = ?", append(args[:6], a.row.ordinal)...)
	}
	return c.exec(ctx, "UPDATE attempts SET "+heard+`, sequence_id = ?, start_time = ?, end_time = ?, status = ?, worker_id = ?, metadata = ?,
		stream = ? WHERE ordinal = ?`, append(args[:13], a.row.ordinal)...)
}

func (t *tx) writeWorkers(ctx context.Context, c *conn) error {
	for _, w := range t.workers {
		cur := w.cur
		if err := assignOrdinal(ctx, c, "workers", &w.ordinal); err != nil {
			return err
		}
		// The update leaves worker_id out: to assign it would write its index.
		if err := c.exec(ctx, `INSERT INTO workers (status, heartbeat_stats, last_heartbeat_time, last_dequeue_time, last_busy_time, last_idle_time,
			current_rollout_id, current_attempt_id, worker_id, ordinal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (ordinal) DO UPDATE SET status = excluded.status, heartbeat_stats = excluded.heartbeat_stats,
			last_heartbeat_time = excluded.last_heartbeat_time, last_dequeue_time = excluded.last_dequeue_time,
			last_busy_time = excluded.last_busy_time, last_idle_time = excluded.last_idle_time,
			current_rollout_id = excluded.current_rollout_id, current_attempt_id = excluded.current_attempt_id`,
			string(cur.Status), nullBytes(cur.HeartbeatStats), nullTime(cur.LastHeartbeatTime), nullTime(cur.LastDequeueTime), nullTime(cur.LastBusyTime),
			nullTime(cur.LastIdleTime), nullText(cur.CurrentRolloutID), nullText(cur.CurrentAttemptID), cur.WorkerID, w.ordinal); err != nil {
			return err
		}
	}
	return nil
}

// assignOrdinal gives a row that has no ordinal yet the next one of its table.
func assignOrdinal(ctx context.Context, c *conn, table string, ordinal *int64) error {
	if *ordinal != 0 {
		return nil
	}
	last, err := c.number(ctx, "SELECT max(ordinal) FROM "+table)
	*ordinal = last + 1
	return err
}

func (t *tx) writeResources(ctx context.Context, c *conn) error {
	for _, u := range t.bundles {
		if err := assignOrdinal(ctx, c, "resources", &u.ordinal); err != nil {
			return err
		}
		document := u.cur.Resources.AppendJSON(nil)
		u.bytes = int64(len(document))
		if err := c.exec(ctx, `INSERT OR REPLACE INTO resources (ordinal, resources_id, create_time, update_time, version, document, crc)
			VALUES (?, ?, ?, ?, ?, ?, ?)`, u.ordinal, u.cur.ResourcesID, float64(u.cur.CreateTime), float64(u.cur.UpdateTime),
			u.cur.Version, document, t.d.codec.sum(document)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) writeGhosts(ctx context.Context, c *conn) error {
	for _, s := range t.ghosts {
		if err := c.exec(ctx, "INSERT OR REPLACE INTO ghosts (rollout_id, sequence, used) VALUES (?, ?, ?)", s.RolloutID, s.Last, float64(t.c.Now)); err != nil {
			return err
		}
	}
	return execEach(ctx, c, "DELETE FROM ghosts WHERE rollout_id = ?", t.revived)
}

// execEach executes a statement for each value of its one argument.
func execEach[T any](ctx context.Context, c *conn, sql string, values []T) error {
	for _, v := range values {
		if err := c.exec(ctx, sql, v); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) writeSpans(ctx context.Context, c *conn) error {
	for i := range t.spans {
		s := t.spans[i].record
		t.state.lastSpan++
		// Package spandelta has compressed deltas already.
		kind, payload, crc := t.d.codec.encode(t.d.packed[:0], s.Payload, s.Base == "")
		if kind != codecRaw {
			t.d.packed = payload // reuse its memory
		}
		if err := c.exec(ctx, `INSERT INTO spans (ordinal, stream, sequence_id, start_time, end_time, span_id, trace_id, parent_id, name,
			codec, size, crc, payload, base) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			t.state.lastSpan, t.spans[i].stream, s.SequenceID, driver.SortTime(s.StartTime), driver.SortTime(s.EndTime), s.SpanID, s.TraceID, s.ParentID, s.Name,
			kind, len(s.Payload), crc, payload, orNull(s.Base, s.Base != "")); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) writeBuckets(ctx context.Context, c *conn) error {
	for key, n := range t.buckets {
		if err := c.exec(ctx, "INSERT INTO span_buckets (stream, bucket, spans) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET spans = spans + excluded.spans",
			key.stream, key.bucket, n); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) writeKeys(ctx context.Context, c *conn) error {
	if err := execEach(ctx, c, "DELETE FROM keys WHERE scope = ?", t.c.ForgottenKeys); err != nil {
		return err
	}
	for i := range t.c.Keys {
		k := &t.c.Keys[i]
		if err := c.exec(ctx, "INSERT OR REPLACE INTO keys ("+keyColumns+") VALUES (?, ?, ?, ?, ?)",
			k.Scope, k.Fingerprint, float64(k.CreateTime), appendMade(nil, k.Made), k.ResourcesID); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) writeEvents(ctx context.Context, c *conn) error {
	if len(t.c.Events) == 0 {
		return nil
	}
	first := t.d.state.lastEvent + 1
	return c.exec(ctx, "INSERT INTO events (first, count, time, events) VALUES (?, ?, ?, ?)",
		first, len(t.c.Events), float64(t.c.Now), rawjson.AppendList(nil, t.c.Events))
}

func (t *tx) writeGarbage(ctx context.Context, c *conn) error {
	return execEach(ctx, c, "INSERT INTO garbage (stream) VALUES (?)", t.garbage)
}

// How many expired records one commit deletes.
const (
	prunedEvents = 4   // rows
	prunedKeys   = 16  // records
	prunedSpans  = 128 // of dropped streams, if the commit also writes rollouts, attempts or spans
	sweptSpans   = 4096
)

// prune deletes a few expired records with each commit.
func (t *tx) prune(ctx context.Context, c *conn) error {
	o := &t.oldest
	if len(t.c.Events) > 0 && !o.events.Valid {
		o.events = agl.Some(eventRow{first: t.d.state.lastEvent + 1, count: int64(len(t.c.Events)), time: t.c.Now})
	}
	if len(t.c.Keys) > 0 && !o.key.Valid {
		o.key = agl.Some(t.c.Keys[0].CreateTime)
	}
	o.garbage = o.garbage || len(t.garbage) > 0
	pruned := false
	if o.events.Valid && t.d.expired(o.events.V, t.c.Now, t.state.lastEvent) {
		pruned = true
		if err := t.pruneEvents(ctx, c); err != nil {
			return err
		}
	}
	if o.key.Valid && t.c.Now.Sub(o.key.V) > t.d.config.IdempotencyTTL {
		pruned = true
		if err := t.pruneKeys(ctx, c); err != nil {
			return err
		}
	}
	if o.garbage {
		pruned = true
		if err := t.sweep(ctx, c); err != nil {
			return err
		}
	}
	if !pruned {
		return nil
	}
	return o.read(ctx, c)
}

func (t *tx) pruneEvents(ctx context.Context, c *conn) error {
	last := int64(-1)
	err := c.query(ctx, "SELECT first, count, time FROM events ORDER BY first LIMIT ? + 0", []any{prunedEvents}, func(r row) error {
		e := eventRow{first: r.int(0), count: r.int(1), time: r.time(2)}
		if !t.d.expired(e, t.c.Now, t.state.lastEvent) {
			return errStop
		}
		last = e.first
		return nil
	})
	if err != nil || last < 0 {
		return err
	}
	return c.exec(ctx, "DELETE FROM events WHERE first <= ?", last)
}

func (t *tx) pruneKeys(ctx context.Context, c *conn) error {
	return c.exec(ctx, "DELETE FROM keys WHERE ordinal IN (SELECT ordinal FROM keys ORDER BY ordinal LIMIT ? + 0) AND create_time < ?",
		prunedKeys, float64(t.c.Now.Add(-t.d.config.IdempotencyTTL)))
}

// sweep deletes some spans of dropped streams.
func (t *tx) sweep(ctx context.Context, c *conn) error {
	left := prunedSpans
	if len(t.spans)+len(t.c.Rollouts)+len(t.c.Attempts) == 0 {
		left = sweptSpans
	}
	for left > 0 {
		stream, err := c.number(ctx, "SELECT min(stream) FROM garbage")
		if err != nil || stream == 0 {
			return err
		}
		if left, err = sweepStream(ctx, c, stream, left); err != nil {
			return err
		}
	}
	return nil
}

// sweepStream deletes up to most spans of a stream. It returns how many more the
// commit may delete.
func sweepStream(ctx context.Context, c *conn, stream int64, most int) (int, error) {
	var ordinals []int64
	err := c.query(ctx, "SELECT ordinal FROM spans INDEXED BY spans_sequence WHERE stream = ? LIMIT ? + 0", []any{stream, most}, func(r row) error {
		ordinals = append(ordinals, r.int(0))
		return nil
	})
	if err != nil {
		return 0, err
	}
	if err := execEach(ctx, c, "DELETE FROM spans WHERE ordinal = ?", ordinals); err != nil {
		return 0, err
	}
	if len(ordinals) == most {
		return 0, nil
	}
	if err := c.exec(ctx, "DELETE FROM span_buckets WHERE stream = ?", stream); err != nil {
		return 0, err
	}
	return most - len(ordinals), c.exec(ctx, "DELETE FROM garbage WHERE stream = ?", stream)
}
