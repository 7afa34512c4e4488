package sqlite

import (
	"bytes"
	"context"
	"math"

	"github.com/agl-go/agl"
)

// write writes every changed row once.
func (t *tx) write(ctx context.Context, c *conn) error {
	for _, step := range []func(context.Context, *conn) error{
		t.writeRollouts, t.writeWorkers, t.writeResources, t.writeGhosts, t.writeSpans, t.writeBuckets, t.writeKeys, t.writeEvents,
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
			if err := c.exec(ctx, "DELETE FROM rollouts WHERE ordinal = ?", w.row.ordinal); err != nil {
				return err
			}
			if err := c.exec(ctx, "DELETE FROM bodies WHERE rollout = ?", w.row.ordinal); err != nil {
				return err
			}
		case w.dirty:
			if w.was == nil {
				buckets[w.row.ordinal>>bucketBits]++
			}
			if err := t.writeRollout(ctx, c, w); err != nil {
				return err
			}
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
	var place, latest, mode any
	if w.row.place != 0 {
		place = w.row.place
	}
	if w.latest != nil {
		latest = w.latest.row.ordinal
	}
	if cur.Mode != agl.ModeNone {
		mode = string(cur.Mode)
	}
	var err error
	// Every index of a column that is set is written, changed or not, so what does
	// not change is not set.
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
	config := cur.Config.AppendJSON(nil)
	return c.exec(ctx, "INSERT OR REPLACE INTO bodies (rollout, input, config, metadata, crc) VALUES (?, ?, ?, ?, ?)",
		w.row.ordinal, nullBytes(cur.Input), config, nullBytes(cur.Metadata), t.d.codec.sum(cur.Input, config, cur.Metadata))
}

// sameHead reports whether all is as it was but the status and what follows
// from it.
func (w *rolloutWork) sameHead() bool {
	was, cur := w.was.cur, w.row.cur
	return was.EndTime == cur.EndTime && was.Mode == cur.Mode && was.ResourcesID == cur.ResourcesID &&
		w.was.place == w.row.place && w.was.evicted == w.row.evicted
}

// onlyHeard reports whether all is as it was but the heartbeat and the counts
// of spans.
func (a *attemptWork) onlyHeard() bool {
	was, cur := a.was.cur, a.row.cur
	return was.SequenceID == cur.SequenceID && was.StartTime == cur.StartTime && was.EndTime == cur.EndTime && was.Status == cur.Status &&
		was.WorkerID == cur.WorkerID && bytes.Equal(was.Metadata, cur.Metadata) && a.was.stream == a.row.stream
}

func (a *attemptWork) write(ctx context.Context, c *conn, w *rolloutWork) error {
	cur := a.row.cur
	switch {
	case a.deleted && a.was == nil:
		return nil
	case a.deleted:
		return c.exec(ctx, "DELETE FROM attempts WHERE ordinal = ?", a.row.ordinal)
	case a.was == nil:
		return c.exec(ctx, `INSERT INTO attempts (sequence_id, start_time, end_time, status, worker_id, last_heartbeat_time, metadata,
			stream, spans, span_bytes, ordinal, rollout, attempt_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			cur.SequenceID, float64(cur.StartTime), nullTime(cur.EndTime), string(cur.Status), nullText(cur.WorkerID),
			nullTime(cur.LastHeartbeatTime), nullBytes(cur.Metadata), a.row.stream, a.row.spans, a.row.bytes,
			a.row.ordinal, w.row.ordinal, cur.AttemptID)
	case a.onlyHeard():
		return c.exec(ctx, "UPDATE attempts SET last_heartbeat_time = ?, spans = ?, span_bytes = ? WHERE ordinal = ?",
			nullTime(cur.LastHeartbeatTime), a.row.spans, a.row.bytes, a.row.ordinal)
	}
	return c.exec(ctx, `UPDATE attempts SET sequence_id = ?, start_time = ?, end_time = ?, status = ?, worker_id = ?, last_heartbeat_time = ?,
		metadata = ?, stream = ?, spans = ?, span_bytes = ? WHERE ordinal = ?`,
		cur.SequenceID, float64(cur.StartTime), nullTime(cur.EndTime), string(cur.Status), nullText(cur.WorkerID),
		nullTime(cur.LastHeartbeatTime), nullBytes(cur.Metadata), a.row.stream, a.row.spans, a.row.bytes, a.row.ordinal)
}

func (t *tx) writeWorkers(ctx context.Context, c *conn) error {
	next := t.d.state.workers
	for _, w := range t.workers {
		cur := w.cur
		statement := `UPDATE workers SET worker_id = ?, status = ?, heartbeat_stats = ?, last_heartbeat_time = ?, last_dequeue_time = ?,
			last_busy_time = ?, last_idle_time = ?, current_rollout_id = ?, current_attempt_id = ? WHERE ordinal = ?`
		if w.ordinal == 0 {
			next++
			w.ordinal = next
			statement = `INSERT INTO workers (worker_id, status, heartbeat_stats, last_heartbeat_time, last_dequeue_time,
				last_busy_time, last_idle_time, current_rollout_id, current_attempt_id, ordinal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
		}
		if err := c.exec(ctx, statement, cur.WorkerID, string(cur.Status), nullBytes(cur.HeartbeatStats), nullTime(cur.LastHeartbeatTime),
			nullTime(cur.LastDequeueTime), nullTime(cur.LastBusyTime), nullTime(cur.LastIdleTime),
			nullText(cur.CurrentRolloutID), nullText(cur.CurrentAttemptID), w.ordinal); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) writeResources(ctx context.Context, c *conn) error {
	next := t.d.state.resources
	for _, u := range t.bundles {
		if u.ordinal == 0 {
			next++
			u.ordinal = next
		}
		document := u.cur.Resources.AppendJSON(nil)
		u.size = int64(len(document))
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
		if err := c.exec(ctx, "INSERT OR REPLACE INTO ghosts (rollout_id, sequence) VALUES (?, ?)", s.RolloutID, s.Last); err != nil {
			return err
		}
	}
	for _, id := range t.revived {
		if err := c.exec(ctx, "DELETE FROM ghosts WHERE rollout_id = ?", id); err != nil {
			return err
		}
	}
	return nil
}

// sortTime is a time as spans are sorted by it.
func sortTime(t agl.Null[agl.Timestamp]) float64 {
	if !t.Valid {
		return math.Inf(1)
	}
	return float64(t.V)
}

func (t *tx) writeSpans(ctx context.Context, c *conn) error {
	for i := range t.spans {
		s := t.spans[i].record
		t.state.lastSpan++
		kind, payload, crc := t.d.codec.encode(t.d.packed[:0], s.Payload)
		if kind != codecRaw {
			t.d.packed = payload // its memory is used again
		}
		if err := c.exec(ctx, `INSERT INTO spans (ordinal, stream, sequence_id, start_time, end_time, span_id, trace_id, parent_id, name,
			codec, size, crc, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			t.state.lastSpan, t.spans[i].stream, s.SequenceID, sortTime(s.StartTime), sortTime(s.EndTime), s.SpanID, s.TraceID, s.ParentID, s.Name,
			kind, len(s.Payload), crc, payload); err != nil {
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
	for _, scope := range t.c.ForgottenKeys {
		if err := c.exec(ctx, "DELETE FROM keys WHERE scope = ?", scope); err != nil {
			return err
		}
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
		first, len(t.c.Events), float64(t.c.Now), appendEvents(nil, t.c.Events))
}

func (t *tx) writeGarbage(ctx context.Context, c *conn) error {
	for _, stream := range t.garbage {
		if err := c.exec(ctx, "INSERT INTO garbage (stream) VALUES (?)", stream); err != nil {
			return err
		}
	}
	return nil
}

// How much of what is not needed any more a commit removes on its way.
const (
	prunedEvents = 4   // rows
	prunedKeys   = 16  // records
	prunedSpans  = 128 // and when the commit does nothing but evict or delete:
	sweptSpans   = 4096
)

// prune removes a little of what is not needed any more.
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

// sweep removes some spans of streams that are no more.
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

// sweepStream removes up to so many spans of a stream, and returns how many
// more may be removed.
func sweepStream(ctx context.Context, c *conn, stream int64, most int) (int, error) {
	var ordinals []int64
	err := c.query(ctx, "SELECT ordinal FROM spans INDEXED BY spans_sequence WHERE stream = ? LIMIT ? + 0", []any{stream, most}, func(r row) error {
		ordinals = append(ordinals, r.int(0))
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, ordinal := range ordinals {
		if err := c.exec(ctx, "DELETE FROM spans WHERE ordinal = ?", ordinal); err != nil {
			return 0, err
		}
	}
	if len(ordinals) == most {
		return 0, nil
	}
	if err := c.exec(ctx, "DELETE FROM span_buckets WHERE stream = ?", stream); err != nil {
		return 0, err
	}
	return most - len(ordinals), c.exec(ctx, "DELETE FROM garbage WHERE stream = ?", stream)
}
