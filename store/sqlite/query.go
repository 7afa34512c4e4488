package sqlite

import (
	"context"
	"math"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

// Rollouts implements driver.Driver.
func (d *Driver) Rollouts(ctx context.Context, ids []string) ([]agl.AttemptedRollout, error) {
	out := make([]agl.AttemptedRollout, len(ids))
	missing := d.cachedRollouts(ids, out)
	if len(missing) > 0 {
		if err := d.readers.snapshot(ctx, func(c *conn) error {
			for _, i := range missing {
				r, err := d.readRollout(ctx, c, ids[i])
				if err != nil {
					return err
				}
				if r != nil {
					out[i] = r.attempted()
				}
			}
			return nil
		}); err != nil {
			return nil, fault(d.path, err)
		}
	}
	return slices.DeleteFunc(out, func(r agl.AttemptedRollout) bool { return r.RolloutID == "" }), nil
}

// cachedRollouts fills in the cached rollouts. It returns the indexes of the others.
func (d *Driver) cachedRollouts(ids []string, out []agl.AttemptedRollout) (missing []int) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for i, id := range ids {
		if r, there := d.rollouts.get(id); there {
			out[i] = r.attempted()
		} else {
			missing = append(missing, i)
		}
	}
	return missing
}

// Live implements driver.Driver.
func (d *Driver) Live(ctx context.Context) (out []agl.AttemptedRollout, err error) {
	err = d.readers.do(ctx, func(c *conn) error {
		return c.query(ctx, selectRollouts+" WHERE r.status IN ('preparing', 'running') AND r.latest IS NOT NULL ORDER BY r.ordinal", nil,
			d.collect(&out))
	})
	return out, fault(d.path, err)
}

// collect adds rows to a list of rollouts.
func (d *Driver) collect(into *[]agl.AttemptedRollout) func(r row) error {
	return func(r row) error {
		found, err := d.scanRollout(r)
		if err == nil {
			*into = append(*into, found.attempted())
		}
		return err
	}
}

// QueryRollouts implements driver.Driver.
func (d *Driver) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	page := agl.Page[agl.AttemptedRollout]{Items: []agl.AttemptedRollout{}, Limit: p.Limit, Offset: p.Offset}
	err := d.readers.snapshot(ctx, func(c *conn) error {
		q := sqlstore.SQLite.Rollouts(p)
		if !q.Filtered && p.After == "" && (p.SortBy == "" || p.SortBy == "start_time") {
			s, err := readState(ctx, c)
			if err != nil {
				return err
			}
			page.Total = int(s.rollouts)
			if p.SortBy == "" || s.startOrdered {
				return d.pageOfRollouts(ctx, c, p.Paging, &page)
			}
		} else if scans(&p) {
			return d.scanOnce(ctx, c, &q, &page)
		} else if err := count(ctx, c, "rollouts AS r", &q, &page.Total); err != nil {
			return err
		}
		// A subquery finds the page without reading the documents.
		tail, args := pageIn(&q)
		return c.query(ctx, "SELECT "+rolloutColumns+", "+attemptColumns+" FROM (SELECT r.ordinal AS found FROM rollouts AS r"+tail+
			") CROSS JOIN rollouts AS r ON r.ordinal = found"+attemptJoin, args, d.collect(&page.Items))
	})
	return page, fault(d.path, err)
}

// scans reports whether a filter looks at every rollout: then one look should do for the page and the total.
func scans(p *agl.QueryRolloutsParams) bool {
	return p.RolloutIDContains != "" || slices.ContainsFunc(p.Labels, func(l agl.Label) bool { return l.Name != "run" })
}

// scanOnce reads a page and the total in one statement.
func (d *Driver) scanOnce(ctx context.Context, c *conn, q *sqlstore.Query, page *agl.Page[agl.AttemptedRollout]) error {
	tail, args := pageIn(q)
	take := d.collect(&page.Items)
	err := c.query(ctx, "SELECT "+rolloutColumns+", "+attemptColumns+", total FROM (SELECT r.ordinal AS found, count(*) OVER () AS total FROM rollouts AS r"+tail+
		") CROSS JOIN rollouts AS r ON r.ordinal = found"+attemptJoin, args, func(r row) error {
		page.Total = int(r.int(len(r) - 1))
		return take(r)
	})
	if err != nil || len(page.Items) > 0 {
		return err
	}
	return count(ctx, c, "rollouts AS r", q, &page.Total) // the page lies behind the last
}

// count counts the rows that a query matches.
func count(ctx context.Context, c *conn, from string, q *sqlstore.Query, into *int) error {
	where, args := q.Count()
	n, err := c.number(ctx, "SELECT count(*) FROM "+from+where, args...)
	*into = int(n)
	return err
}

// pageIn is the page of a query as a subquery. SQLite drops the order of a subquery
// without a limit.
func pageIn(q *sqlstore.Query) (tail string, args []any) {
	tail, args = q.Page()
	if q.Limit == "" {
		tail += keepOrder
	}
	return tail, args
}

// keepOrder keeps the order of a subquery.
const keepOrder = " LIMIT -1"

// minSeek is the offset from which a page is found by the counts of buckets. Smaller
// offsets are skipped row by row.
const minSeek = 1 << bucketBits

// pageOfRollouts reads a page of all rollouts, in the order of creation or by falling
// start time. It skips whole buckets by their counts.
func (d *Driver) pageOfRollouts(ctx context.Context, c *conn, p agl.Paging, page *agl.Page[agl.AttemptedRollout]) error {
	if p.Offset >= page.Total {
		return nil
	}
	condition, order, bound := "r.ordinal >= ?", "r.ordinal", any(int64(0))
	skip := int64(p.Offset)
	if p.SortBy != "" && p.Order == agl.Descending {
		condition, order, bound = "r.start_time <= ?", "r.start_time DESC, r.ordinal", any(math.Inf(1))
		if skip >= minSeek {
			start, passed, err := seekBackward(ctx, c, skip)
			if err != nil {
				return err
			}
			bound, skip = start, skip-passed
		}
	} else if skip >= minSeek {
		bucket, passed, err := seek(ctx, c, skip, "SELECT bucket, rollouts FROM rollout_buckets ORDER BY bucket")
		if err != nil {
			return err
		}
		bound, skip = bucket<<bucketBits, skip-passed
	}
	return c.query(ctx, "SELECT "+rolloutColumns+", "+attemptColumns+" FROM (SELECT r.ordinal AS found FROM rollouts AS r WHERE "+
		condition+" ORDER BY "+order+" LIMIT ? + 0 OFFSET ?) CROSS JOIN rollouts AS r ON r.ordinal = found"+attemptJoin,
		[]any{bound, p.Limit, skip}, d.collect(&page.Items))
}

// seek adds up the counts of buckets. It returns the bucket that contains offset, and
// the number of rows before it.
func seek(ctx context.Context, c *conn, offset int64, buckets string, args ...any) (bucket, passed int64, err error) {
	err = c.query(ctx, buckets, args, func(r row) error {
		bucket = r.int(0)
		if passed+r.int(1) > offset {
			return errStop
		}
		passed += r.int(1)
		return nil
	})
	return bucket, passed, err
}

// seekBackward returns a start time and the number of rollouts that started later, at
// most offset.
func seekBackward(ctx context.Context, c *conn, offset int64) (start any, passed int64, err error) {
	bucket, passed, err := seek(ctx, c, offset, "SELECT bucket, rollouts FROM rollout_buckets ORDER BY bucket DESC")
	if err != nil || passed == 0 {
		return math.Inf(1), 0, err
	}
	// The skipped rollouts are those from first on. Rollouts with the same start time as
	// the first of them sort before it, whatever bucket they are in.
	first := (bucket + 1) << bucketBits
	var time float64
	err = c.query(ctx, "SELECT start_time FROM rollouts WHERE ordinal >= ? ORDER BY ordinal LIMIT 1", []any{first}, func(r row) error {
		time = r.float(0)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	together, err := c.number(ctx, "SELECT count(*) FROM rollouts INDEXED BY rollouts_start WHERE start_time = ? AND ordinal >= ?", time, first)
	return time, passed - together, err
}

// Queue implements driver.Driver.
func (d *Driver) Queue(ctx context.Context, limit int, heard agl.Timestamp) (out driver.QueueCounts, err error) {
	err = d.readers.snapshot(ctx, func(c *conn) error {
		queued, err := c.number(ctx, "SELECT count(*) FROM (SELECT 1 FROM rollouts WHERE place IS NOT NULL LIMIT ?)", limit)
		if err != nil {
			return err
		}
		out.Queued = int(queued)
		err = c.query(ctx, "SELECT COALESCE(a.end_time, r.start_time) FROM rollouts AS r LEFT JOIN attempts AS a ON a.ordinal = r.latest"+
			" WHERE r.place IS NOT NULL ORDER BY r.place LIMIT 1", nil, func(r row) error {
			out.Since = agl.Some(r.time(0))
			return nil
		})
		if err != nil {
			return err
		}
		return c.query(ctx, "SELECT COALESCE(sum(status = 'idle'), 0), COALESCE(sum(status = 'busy'), 0) FROM workers WHERE max("+
			"COALESCE(last_heartbeat_time, 0), COALESCE(last_dequeue_time, 0), COALESCE(last_busy_time, 0), COALESCE(last_idle_time, 0)) >= ?",
			[]any{float64(heard)}, func(r row) error {
				out.Idle, out.Busy = int(r.int(0)), int(r.int(1))
				return nil
			})
	})
	return out, fault(d.path, err)
}

// QueryAttempts implements driver.Driver.
func (d *Driver) QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error) {
	q := sqlstore.SQLite.Attempts(p, sqlstore.Condition{SQL: "a.rollout = (SELECT ordinal FROM rollouts WHERE rollout_id = ?)", Args: []any{p.RolloutID}})
	return find(ctx, d, p.Paging, &q, "attempts AS a", attemptColumns, func(r row) (*agl.Attempt, error) {
		return scanAttempt(r, p.RolloutID).cur, nil
	})
}

// find reads a page of one table, and the total, at one moment.
func find[T any](
	ctx context.Context, d *Driver, p agl.Paging, q *sqlstore.Query, from, columns string, scan func(row) (*T, error),
) (agl.Page[T], error) {
	page := agl.Page[T]{Items: []T{}, Limit: p.Limit, Offset: p.Offset}
	err := d.readers.snapshot(ctx, func(c *conn) error {
		if err := count(ctx, c, from, q, &page.Total); err != nil {
			return err
		}
		tail, args := q.Page()
		return c.query(ctx, "SELECT "+columns+" FROM "+from+tail, args, func(r row) error {
			item, err := scan(r)
			if err == nil {
				page.Items = append(page.Items, *item)
			}
			return err
		})
	})
	return page, fault(d.path, err)
}

// current returns the committed worker or bundle for a query; ErrNotFound. Unlike recall it does not cache what it reads.
func current[T any](
	ctx context.Context, d *Driver, cache *cache[string, *plainRow[T]], what, id string, read func(context.Context, *conn, string) (*plainRow[T], error),
) (out T, err error) {
	d.mu.RLock()
	r, there := cache.get(id)
	d.mu.RUnlock()
	if !there {
		err = d.readers.do(ctx, func(c *conn) (err error) {
			r, err = read(ctx, c, id)
			return err
		})
	}
	switch {
	case err != nil:
		return out, fault(d.path, err)
	case r == nil:
		return out, agl.Errorf(agl.CodeNotFound, "%s %s not found", what, id)
	}
	return *r.cur, nil
}

// Resources implements driver.Driver.
func (d *Driver) Resources(ctx context.Context, id string) (agl.ResourcesUpdate, error) {
	return current(ctx, d, d.resources, "Resources", id, d.readResources)
}

// LatestResources implements driver.Driver.
func (d *Driver) LatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	d.mu.RLock()
	latest := d.state.latestResources
	d.mu.RUnlock()
	if !latest.Valid {
		return agl.ResourcesUpdate{}, agl.Errorf(agl.CodeNotFound, "No resources found")
	}
	return d.Resources(ctx, latest.V)
}

// QueryResources implements driver.Driver.
func (d *Driver) QueryResources(ctx context.Context, p agl.QueryResourcesParams) (agl.Page[agl.ResourcesUpdate], error) {
	q := sqlstore.SQLite.Resources(p)
	return find(ctx, d, p.Paging, &q, "resources AS u", resourcesColumns, func(r row) (*agl.ResourcesUpdate, error) {
		u, err := d.scanResources(r)
		if err != nil {
			return nil, err
		}
		return u.cur, nil
	})
}

// Worker implements driver.Driver.
func (d *Driver) Worker(ctx context.Context, id string) (agl.Worker, error) {
	return current(ctx, d, d.workers, "Worker", id, readWorker)
}

// QueryWorkers implements driver.Driver.
func (d *Driver) QueryWorkers(ctx context.Context, p agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	q := sqlstore.SQLite.Workers(p)
	return find(ctx, d, p.Paging, &q, "workers AS w", workerColumns, func(r row) (*agl.Worker, error) {
		return scanWorker(r).cur, nil
	})
}
