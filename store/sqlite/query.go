package sqlite

import (
	"context"
	"math"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/internal/sqlquery"
)

// Rollouts implements store.Driver.
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

// cachedRollouts fills in what is in memory and returns the indexes of what is
// not.
func (d *Driver) cachedRollouts(ids []string, out []agl.AttemptedRollout) (missing []int) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for i, id := range ids {
		if e, there := d.rollouts.get(id); there {
			out[i] = e.row.attempted()
		} else {
			missing = append(missing, i)
		}
	}
	return missing
}

// Live implements store.Driver.
func (d *Driver) Live(ctx context.Context) (out []agl.AttemptedRollout, err error) {
	err = d.readers.do(ctx, func(c *conn) error {
		return c.query(ctx, selectRollouts+" WHERE r.status IN ('preparing', 'running') AND r.latest IS NOT NULL ORDER BY r.ordinal", nil,
			d.collect(&out))
	})
	return out, fault(d.path, err)
}

// collect gathers rollouts.
func (d *Driver) collect(into *[]agl.AttemptedRollout) func(r row) error {
	return func(r row) error {
		found, err := d.scanRollout(r)
		if err == nil {
			*into = append(*into, found.attempted())
		}
		return err
	}
}

// QueryRollouts implements store.Driver.
func (d *Driver) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	page := agl.Page[agl.AttemptedRollout]{Items: []agl.AttemptedRollout{}, Limit: p.Limit, Offset: p.Offset}
	err := d.readers.snapshot(ctx, func(c *conn) error {
		q := sqlquery.SQLite.Rollouts(p)
		if !q.Filtered && (p.SortBy == "" || p.SortBy == "start_time") {
			s, err := readState(ctx, c)
			if err != nil {
				return err
			}
			page.Total = int(s.rollouts)
			if p.SortBy == "" || s.startOrdered {
				return d.pageOfRollouts(ctx, c, p.Paging, &page)
			}
		} else if err := count(ctx, c, "rollouts AS r", &q, &page.Total); err != nil {
			return err
		}
		// The page is found by what is sorted alone, without the documents.
		tail, args := pageIn(&q)
		return c.query(ctx, "SELECT "+rolloutColumns+", "+attemptColumns+" FROM (SELECT r.ordinal AS found FROM rollouts AS r"+tail+
			") CROSS JOIN rollouts AS r ON r.ordinal = found"+attemptJoin, args, d.collect(&page.Items))
	})
	return page, fault(d.path, err)
}

// count counts what a query matches.
func count(ctx context.Context, c *conn, from string, q *sqlquery.Query, into *int) error {
	where, args := q.Count()
	n, err := c.number(ctx, "SELECT count(*) FROM "+from+where, args...)
	*into = int(n)
	return err
}

// pageIn is the page of a query as a subquery. Without a limit, SQLite takes its
// order for needless.
func pageIn(q *sqlquery.Query) (tail string, args []any) {
	tail, args = q.Page()
	if q.Limit == "" {
		tail += keepOrder
	}
	return tail, args
}

// keepOrder keeps the order of a subquery.
const keepOrder = " LIMIT -1"

// minSeek is the offset from which on a page is sought by counts; before it, it
// is reached by skipping.
const minSeek = 1 << bucketBits

// pageOfRollouts reads a page in the order of creation, or from the last start
// to the first, of all rollouts. Whole buckets are skipped by their counts.
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

// seek goes through buckets and their counts until the next would go beyond
// offset. It returns that bucket and how much is before it.
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

// seekBackward returns a start time and how many rollouts started after it, at
// most offset.
func seekBackward(ctx context.Context, c *conn, offset int64) (start any, passed int64, err error) {
	bucket, passed, err := seek(ctx, c, offset, "SELECT bucket, rollouts FROM rollout_buckets ORDER BY bucket DESC")
	if err != nil || passed == 0 {
		return math.Inf(1), 0, err
	}
	// Those that were passed are the rollouts from here on. Some may have started
	// together with the first of them; they come before those in the page's order,
	// whatever bucket they are in.
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

// QueryAttempts implements store.Driver.
func (d *Driver) QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error) {
	page := agl.Page[agl.Attempt]{Items: []agl.Attempt{}, Limit: p.Limit, Offset: p.Offset}
	err := d.readers.snapshot(ctx, func(c *conn) error {
		ordinal, err := c.number(ctx, "SELECT ordinal FROM rollouts WHERE rollout_id = ?", p.RolloutID)
		if err != nil || ordinal == 0 {
			return err
		}
		q := sqlquery.SQLite.Attempts(p, sqlquery.Condition{SQL: "a.rollout = ?", Args: []any{ordinal}})
		if err := count(ctx, c, "attempts AS a", &q, &page.Total); err != nil {
			return err
		}
		tail, args := q.Page()
		return c.query(ctx, "SELECT "+attemptColumns+" FROM attempts AS a"+tail, args, func(r row) error {
			page.Items = append(page.Items, *scanAttempt(r, p.RolloutID).cur)
			return nil
		})
	})
	return page, fault(d.path, err)
}

// Resources implements store.Driver.
func (d *Driver) Resources(ctx context.Context, id string) (agl.ResourcesUpdate, error) {
	d.mu.RLock()
	u, there := d.resources.get(id)
	d.mu.RUnlock()
	if !there {
		err := d.readers.do(ctx, func(c *conn) (err error) {
			u, err = d.readResources(ctx, c, id)
			return err
		})
		if err != nil {
			return agl.ResourcesUpdate{}, fault(d.path, err)
		}
	}
	if u == nil {
		return agl.ResourcesUpdate{}, agl.Errorf(agl.CodeNotFound, "Resources %s not found", id)
	}
	return *u.cur, nil
}

// LatestResources implements store.Driver.
func (d *Driver) LatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	d.mu.RLock()
	latest := d.state.latestResources
	d.mu.RUnlock()
	if !latest.Valid {
		return agl.ResourcesUpdate{}, agl.Errorf(agl.CodeNotFound, "No resources found")
	}
	return d.Resources(ctx, latest.V)
}

// QueryResources implements store.Driver.
func (d *Driver) QueryResources(ctx context.Context, p agl.QueryResourcesParams) (agl.Page[agl.ResourcesUpdate], error) {
	page := agl.Page[agl.ResourcesUpdate]{Items: []agl.ResourcesUpdate{}, Limit: p.Limit, Offset: p.Offset}
	err := d.readers.snapshot(ctx, func(c *conn) error {
		q := sqlquery.SQLite.Resources(p)
		if err := count(ctx, c, "resources AS u", &q, &page.Total); err != nil {
			return err
		}
		tail, args := pageIn(&q)
		return c.query(ctx, "SELECT "+resourcesColumns+" FROM (SELECT u.ordinal AS found FROM resources AS u"+tail+
			") CROSS JOIN resources AS u ON u.ordinal = found", args, func(r row) error {
			u, err := d.scanResources(r)
			if err == nil {
				page.Items = append(page.Items, *u.cur)
			}
			return err
		})
	})
	return page, fault(d.path, err)
}

// Worker implements store.Driver.
func (d *Driver) Worker(ctx context.Context, id string) (agl.Worker, error) {
	d.mu.RLock()
	w, there := d.workers.get(id)
	d.mu.RUnlock()
	if !there {
		err := d.readers.do(ctx, func(c *conn) (err error) {
			w, err = readWorker(ctx, c, id)
			return err
		})
		if err != nil {
			return agl.Worker{}, fault(d.path, err)
		}
	}
	if w == nil {
		return agl.Worker{}, agl.Errorf(agl.CodeNotFound, "Worker %s not found", id)
	}
	return *w.cur, nil
}

// QueryWorkers implements store.Driver.
func (d *Driver) QueryWorkers(ctx context.Context, p agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	page := agl.Page[agl.Worker]{Items: []agl.Worker{}, Limit: p.Limit, Offset: p.Offset}
	err := d.readers.snapshot(ctx, func(c *conn) error {
		q := sqlquery.SQLite.Workers(p)
		if err := count(ctx, c, "workers AS w", &q, &page.Total); err != nil {
			return err
		}
		tail, args := q.Page()
		return c.query(ctx, "SELECT "+workerColumns+" FROM workers AS w"+tail, args, func(r row) error {
			page.Items = append(page.Items, *scanWorker(r).cur)
			return nil
		})
	})
	return page, fault(d.path, err)
}
