package sqlite

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

// Export implements driver.Driver. The write-ahead log cannot be truncated while it
// runs.
func (d *Driver) Export(ctx context.Context) iter.Seq2[driver.Record, error] {
	return sqlstore.Export(func(give func(driver.Record) error) error {
		return fault(d.path, d.readers.snapshot(ctx, func(c *conn) error {
			return (&exporter{d: d, c: c, give: give}).run(ctx)
		}))
	})
}

type exporter struct {
	d    *Driver
	c    *conn
	give func(driver.Record) error

	ahead   map[string]int64 // as in Driver, when the snapshot began
	crashes map[int64]bool

	rolloutsGiven, attemptsGiven, spansGiven int64
}

func (e *exporter) run(ctx context.Context) error {
	s, err := readState(ctx, e.c) // the snapshot begins
	if err != nil {
		return err
	}
	// A sequence id that is given out at the same time may be missing, and so are the spans with that id.
	e.d.mu.RLock()
	e.ahead, e.crashes = maps.Clone(e.d.ahead), maps.Clone(e.d.crashes)
	e.d.mu.RUnlock()
	for _, part := range []func(context.Context) error{e.resources, e.workers, e.rollouts, e.sequences, e.documents, e.keys} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	// SQLite does not notice each damaged page that it reads.
	if e.rolloutsGiven != s.rollouts || e.attemptsGiven != s.attempts || e.spansGiven != s.spans {
		return errDamaged(e.d.path, fmt.Errorf("found %d rollouts, %d attempts and %d spans, there should be %d, %d and %d",
			e.rolloutsGiven, e.attemptsGiven, e.spansGiven, s.rollouts, s.attempts, s.spans))
	}
	return e.give(driver.Record{State: &driver.State{QueueClosed: s.queueClosed, LatestResources: s.latestResources}})
}

func (e *exporter) resources(ctx context.Context) error {
	return e.c.query(ctx, "SELECT "+resourcesColumns+" FROM resources AS u ORDER BY u.ordinal", nil, func(r row) error {
		u, err := e.d.scanResources(r)
		if err != nil {
			return err
		}
		return e.give(driver.Record{Resources: u.cur})
	})
}

func (e *exporter) workers(ctx context.Context) error {
	return e.c.query(ctx, "SELECT "+workerColumns+" FROM workers AS w ORDER BY w.ordinal", nil, func(r row) error {
		return e.give(driver.Record{Worker: scanWorker(r).cur})
	})
}

func (e *exporter) rollouts(ctx context.Context) error {
	return e.c.query(ctx, selectRollouts+" ORDER BY r.ordinal", nil, func(r row) error {
		found, err := e.d.scanRollout(r)
		if err != nil {
			return err
		}
		record := driver.RolloutRecord{Rollout: found.cur, Evicted: found.evicted, Place: agl.Null[int64]{V: found.place, Valid: found.place != 0}}
		e.rolloutsGiven++
		if err := e.give(driver.Record{Rollout: &record}); err != nil {
			return err
		}
		attempts, err := readAttempts(ctx, e.c, found.ordinal, found.cur.RolloutID)
		if err != nil {
			return err
		}
		for _, a := range attempts {
			e.attemptsGiven++
			if err := e.give(driver.Record{Attempt: a.cur}); err != nil {
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
	const spans = `SELECT s.sequence_id, s.start_time, s.end_time, s.span_id, s.trace_id, s.parent_id, s.name, s.codec, s.size, s.crc, s.payload, attempt, s.base
		FROM (SELECT s.ordinal AS found, a.attempt_id AS attempt FROM attempts AS a JOIN spans AS s ON s.stream = a.stream WHERE a.rollout = ? ORDER BY s.ordinal LIMIT -1)
		CROSS JOIN spans AS s ON s.ordinal = found`
	return e.c.query(ctx, spans, []any{r.ordinal}, func(row row) error {
		s := driver.SpanRecord{
			SpanKey:    driver.SpanKey{RolloutID: r.cur.RolloutID, AttemptID: row.text(11), SpanID: row.text(3)},
			SequenceID: row.int(0), StartTime: unsortTime(row.float(1)), EndTime: unsortTime(row.float(2)),
			TraceID: row.text(4), ParentID: row.text(5), Name: row.text(6), Base: row.nullText(12).V,
		}
		var err error
		if s.Payload, err = e.d.codec.decode(row.int(7), row.int(8), row.int(9), row.bytes(10)); err != nil {
			return errPayload(e.d.path, "span "+s.RolloutID+"/"+s.AttemptID+"/"+s.SpanID, err)
		}
		e.spansGiven++
		return e.give(driver.Record{Span: &s})
	})
}

// unsortTime is the reverse of driver.SortTime.
func unsortTime(t float64) agl.Null[agl.Timestamp] {
	if math.IsInf(t, 1) {
		return agl.Null[agl.Timestamp]{}
	}
	return agl.Some(agl.Timestamp(t))
}

// sequences gives the sequences of all rollouts by id, including rollouts that do not
// exist.
func (e *exporter) sequences(ctx context.Context) error {
	return e.c.query(ctx, `SELECT rollout_id, sequence, boot FROM rollouts UNION ALL SELECT rollout_id, sequence, 0 FROM ghosts ORDER BY rollout_id`, nil,
		func(r row) error {
			id, last := r.text(0), afterCrash(r.nullInt(1), e.crashes[r.int(2)])
			if handed, there := e.ahead[id]; there {
				last = agl.Some(max(handed, last.V))
			}
			if !last.Valid {
				return nil
			}
			return e.give(driver.Record{Sequence: &driver.Sequence{RolloutID: id, Last: last.V}})
		})
}

func (e *exporter) keys(ctx context.Context) error {
	return e.c.query(ctx, "SELECT "+keyColumns+" FROM keys ORDER BY ordinal", nil, func(r row) error {
		key, err := scanKey(r)
		if err != nil {
			return err
		}
		return e.give(driver.Record{Key: key})
	})
}
