package sqlite

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/agl-go/agl/store/driver"
)

// finished are the statuses of finished rollouts, as the index has them. The index of statuses finds the others.
const (
	finished   = "('failed', 'succeeded', 'cancelled')"
	unfinished = "('queuing', 'requeuing', 'preparing', 'running')"
)

// unused selects the bundles that are neither the latest nor named by an unfinished
// rollout.
const unused = ` FROM resources AS u WHERE u.resources_id IS NOT (SELECT latest_resources FROM state) AND u.resources_id NOT IN
	(SELECT r.resources_id FROM rollouts AS r WHERE r.status IN ` + unfinished + ` AND r.resources_id IS NOT NULL)`

// used selects the bundles that unfinished rollouts name.
const used = "SELECT DISTINCT resources_id FROM rollouts WHERE resources_id IS NOT NULL AND status IN " + unfinished

// heldBytes is the size of the spans of a rollout that holds some.
const heldBytes = `(SELECT sum(a.span_bytes) FROM attempts AS a WHERE a.rollout = r.ordinal)`

// Oldest implements driver.Driver.
func (d *Driver) Oldest(ctx context.Context, kind driver.Removable, limit int) (out driver.OldestList, err error) {
	err = d.readers.snapshot(ctx, func(c *conn) error {
		switch kind {
		case driver.RemovableSpans:
			s, err := readState(ctx, c)
			if err != nil {
				return err
			}
			out.SpanBytes = s.spanBytes
			return oldestOf(ctx, c, &out, limit, " FROM rollouts AS r WHERE r.holds = 1 AND r.status IN "+finished, "r.rollout_id, r.end_time, "+heldBytes,
				"r.end_time, r.ordinal")
		case driver.RemovableRollouts:
			// The index is sorted by end time for each value of holds.
			for holds, bytes := range []string{"0", heldBytes} {
				if err := oldestOf(ctx, c, &out, limit, " FROM rollouts AS r WHERE r.holds = "+strconv.Itoa(holds)+" AND r.status IN "+finished,
					"r.rollout_id, r.end_time, "+bytes, "r.end_time, r.ordinal"); err != nil {
					return err
				}
			}
			slices.SortStableFunc(out.Items, func(a, b driver.Oldest) int { return cmp.Compare(a.Time, b.Time) })
			out.Items = out.Items[:min(len(out.Items), limit)]
			return nil
		case driver.RemovableWorkers:
			const contact = "max(ifnull(w.last_heartbeat_time, 0), ifnull(w.last_dequeue_time, 0), ifnull(w.last_busy_time, 0), ifnull(w.last_idle_time, 0))"
			return oldestOf(ctx, c, &out, limit, " FROM workers AS w WHERE w.status <> 'busy'", "w.worker_id, "+contact+", 0", contact+", w.ordinal")
		case driver.RemovableResources:
			return oldestOf(ctx, c, &out, limit, unused, "u.resources_id, u.update_time, 0", "u.update_time, u.ordinal")
		case driver.RemovableSequences:
			return oldestOf(ctx, c, &out, limit, " FROM ghosts AS g", "g.rollout_id, g.used, 0", "g.used, g.rollout_id")
		}
		return nil
	})
	return out, fault(d.path, err)
}

// oldestOf counts the rows of from, and adds the oldest. columns are the id, the time
// and the size.
func oldestOf(ctx context.Context, c *conn, out *driver.OldestList, limit int, from, columns, order string) error {
	n, err := c.number(ctx, "SELECT count(*)"+from)
	if err != nil {
		return err
	}
	out.Count += int(n)
	return c.query(ctx, "SELECT "+columns+from+" ORDER BY "+order+" LIMIT ? + 0", []any{limit}, func(r row) error {
		out.Items = append(out.Items, driver.Oldest{ID: r.text(0), Time: r.time(1), SpanBytes: r.int(2)})
		return nil
	})
}

// inUse adds the bundles that an unfinished rollout names.
func (l *loader) inUse(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	c, err := l.conn(ctx)
	if err != nil {
		return err
	}
	return c.query(ctx, used, nil, func(r row) error {
		if id := r.text(0); slices.Contains(ids, id) {
			l.got.InUse = append(l.got.InUse, id)
		}
		return nil
	})
}

// writeRetained deletes workers, bundles and sequences of unknown rollouts.
func (t *tx) writeRetained(ctx context.Context, c *conn) error {
	for _, deleted := range []struct {
		ids   []string
		sql   string
		count *int64
	}{
		{t.c.DeletedWorkers, "DELETE FROM workers WHERE worker_id = ?", &t.state.workers},
		{t.c.DeletedResources, "DELETE FROM resources WHERE resources_id = ?", &t.state.resources},
		{t.c.DeletedSequences, "DELETE FROM ghosts WHERE rollout_id = ?", &t.state.ghosts},
	} {
		for _, id := range deleted.ids {
			if err := c.exec(ctx, deleted.sql, id); err != nil {
				return err
			}
			n, err := c.number(ctx, "SELECT changes()")
			if err != nil {
				return err
			}
			*deleted.count -= n
		}
	}
	return nil
}
