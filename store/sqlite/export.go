package sqlite

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

// Evictable implements store.Driver.
func (d *Driver) Evictable(ctx context.Context, limit int) (out store.EvictableList, err error) {
	d.mu.RLock()
	out.SpanBytes = d.state.spanBytes
	d.mu.RUnlock()
	err = d.readers.do(ctx, func(c *conn) error {
		return c.query(ctx, `SELECT r.rollout_id, r.end_time, (SELECT sum(a.span_bytes) FROM attempts AS a WHERE a.rollout = r.ordinal)
			FROM rollouts AS r INDEXED BY rollouts_evictable WHERE r.holds = 1 AND r.status IN ('failed', 'succeeded', 'cancelled')
			ORDER BY r.end_time, r.ordinal LIMIT ? + 0`, []any{limit}, func(r row) error {
			out.Rollouts = append(out.Rollouts, store.EvictableRollout{RolloutID: r.text(0), EndTime: r.time(1), SpanBytes: r.int(2)})
			return nil
		})
	})
	return out, fault(d.path, err)
}

// errConsumerStopped ends an export that nobody wants more of.
var errConsumerStopped = errors.New("stopped")

// Export implements store.Driver. While it runs, the write-ahead log cannot be
// cut.
func (d *Driver) Export(ctx context.Context) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		e := exporter{d: d, yield: yield}
		err := d.readers.snapshot(ctx, func(c *conn) error {
			e.c = c
			return e.run(ctx)
		})
		if err != nil && !errors.Is(err, errConsumerStopped) {
			yield(store.Record{}, fault(d.path, err))
		}
	}
}

type exporter struct {
	d     *Driver
	c     *conn
	yield func(store.Record, error) bool
}

func (e *exporter) give(r store.Record) error {
	if !e.yield(r, nil) {
		return errConsumerStopped
	}
	return nil
}

func (e *exporter) run(ctx context.Context) error {
	ahead, crashes, s, err := e.sequenceState(ctx)
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{e.resources, e.workers, e.rollouts} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if err := e.sequences(ctx, ahead, crashes); err != nil {
		return err
	}
	if err := e.keys(ctx); err != nil {
		return err
	}
	return e.give(store.Record{State: &store.State{QueueClosed: s.queueClosed, LatestResources: s.latestResources}})
}

// sequenceState begins the transaction and takes along what is in memory alone.
// A sequence id that is handed out meanwhile is in it or not; the spans that
// carry it are not.
func (e *exporter) sequenceState(ctx context.Context) (ahead map[string]int64, crashes map[int64]bool, s state, err error) {
	if s, err = readState(ctx, e.c); err != nil {
		return nil, nil, s, err
	}
	e.d.mu.RLock()
	defer e.d.mu.RUnlock()
	return maps.Clone(e.d.ahead), maps.Clone(e.d.crashes), s, nil
}

func (e *exporter) resources(ctx context.Context) error {
	return e.c.query(ctx, "SELECT "+resourcesColumns+" FROM resources AS u ORDER BY u.ordinal", nil, func(r row) error {
		u, err := e.d.scanResources(r)
		if err != nil {
			return err
		}
		return e.give(store.Record{Resources: u.cur})
	})
}

func (e *exporter) workers(ctx context.Context) error {
	return e.c.query(ctx, "SELECT "+workerColumns+" FROM workers AS w ORDER BY w.ordinal", nil, func(r row) error {
		return e.give(store.Record{Worker: scanWorker(r).cur})
	})
}

func (e *exporter) rollouts(ctx context.Context) error {
	return e.c.query(ctx, selectRollouts+" ORDER BY r.ordinal", nil, func(r row) error {
		found, err := e.d.scanRollout(r)
		if err != nil {
			return err
		}
		record := store.RolloutRecord{Rollout: found.cur, Evicted: found.evicted, Place: agl.Null[int64]{V: found.place, Valid: found.place != 0}}
		if err := e.give(store.Record{Rollout: &record}); err != nil {
			return err
		}
		attempts, err := readAttempts(ctx, e.c, found.ordinal, found.cur.RolloutID)
		if err != nil {
			return err
		}
		for _, a := range attempts {
			if err := e.give(store.Record{Attempt: a.cur}); err != nil {
				return err
			}
		}
		if slices.ContainsFunc(attempts, func(a *attemptRow) bool { return a.spans > 0 }) {
			return e.spans(ctx, found)
		}
		return nil
	})
}

func (e *exporter) spans(ctx context.Context, r *rolloutRow) error {
	const spans = `SELECT s.sequence_id, s.start_time, s.end_time, s.span_id, s.trace_id, s.parent_id, s.name, s.codec, s.size, s.crc, s.payload, attempt
		FROM (SELECT s.ordinal AS found, a.attempt_id AS attempt FROM attempts AS a JOIN spans AS s ON s.stream = a.stream WHERE a.rollout = ? ORDER BY s.ordinal LIMIT -1)
		CROSS JOIN spans AS s ON s.ordinal = found`
	return e.c.query(ctx, spans, []any{r.ordinal}, func(row row) error {
		s := store.SpanRecord{
			SpanKey:    store.SpanKey{RolloutID: r.cur.RolloutID, AttemptID: row.text(11), SpanID: row.text(3)},
			SequenceID: row.int(0), StartTime: unsortTime(row.float(1)), EndTime: unsortTime(row.float(2)),
			TraceID: row.text(4), ParentID: row.text(5), Name: row.text(6),
		}
		var err error
		if s.Payload, err = e.d.codec.decode(row.int(7), row.int(8), row.int(9), row.bytes(10)); err != nil {
			return errPayload(e.d.path, "span "+s.RolloutID+"/"+s.AttemptID+"/"+s.SpanID, err)
		}
		return e.give(store.Record{Span: &s})
	})
}

// unsortTime is the reverse of sortTime.
func unsortTime(t float64) agl.Null[agl.Timestamp] {
	if math.IsInf(t, 1) {
		return agl.Null[agl.Timestamp]{}
	}
	return agl.Some(agl.Timestamp(t))
}

// sequences gives the sequences of all rollouts, those that do not exist too,
// by their ids.
func (e *exporter) sequences(ctx context.Context, ahead map[string]int64, crashes map[int64]bool) error {
	return e.c.query(ctx, `SELECT rollout_id, sequence, boot FROM rollouts UNION ALL SELECT rollout_id, sequence, 0 FROM ghosts ORDER BY rollout_id`, nil,
		func(r row) error {
			id, last := r.text(0), afterCrash(r.nullInt(1), crashes[r.int(2)])
			if handed, there := ahead[id]; there {
				last = agl.Some(max(handed, last.V))
			}
			if !last.Valid {
				return nil
			}
			return e.give(store.Record{Sequence: &store.Sequence{RolloutID: id, Last: last.V}})
		})
}

func (e *exporter) keys(ctx context.Context) error {
	return e.c.query(ctx, "SELECT "+keyColumns+" FROM keys ORDER BY ordinal", nil, func(r row) error {
		key, err := scanKey(r)
		if err != nil {
			return err
		}
		return e.give(store.Record{Key: &key})
	})
}
