package sqlite

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

// spanQuery is one query of spans.
type spanQuery struct {
	d       *Driver
	c       *conn
	params  agl.QuerySpansParams
	rollout int64            // its ordinal
	streams []any            // of the wanted attempts
	ids     map[int64]string // attempt ids by stream
	page    agl.Page[driver.StoredSpan]
}

// QuerySpans implements driver.Driver.
func (d *Driver) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[driver.StoredSpan], error) {
	q := spanQuery{d: d, params: p, ids: map[int64]string{}, page: agl.Page[driver.StoredSpan]{Items: []driver.StoredSpan{}, Limit: p.Limit, Offset: p.Offset}}
	if q.fromMemory() {
		return q.page, nil
	}
	err := d.readers.snapshot(ctx, func(c *conn) error {
		q.c = c
		return q.run(ctx)
	})
	if err != nil {
		return agl.Page[driver.StoredSpan]{}, fault(d.path, err)
	}
	return q.page, nil
}

// fromMemory answers the most frequent query, for all spans of one attempt by sequence id or the first page of them, if the
// attempt and its spans are in the cache. It reports whether it has answered.
func (q *spanQuery) fromMemory() bool {
	p := &q.params
	filter := cmp.Or(p.TraceID, p.TraceIDContains, p.SpanID, p.SpanIDContains, p.ParentID, p.ParentIDContains, p.Name, p.NameContains)
	if filter != "" || p.Offset != 0 || p.SortBy != "" && (p.SortBy != "sequence_id" || p.Order == agl.Descending) {
		return false
	}
	kept := q.d.recentSpans(p)
	if kept == nil {
		return false
	}
	q.page.Total = len(kept.spans)
	n := q.page.Total
	if p.Limit > 0 {
		n = min(n, p.Limit)
	}
	for i := range n {
		q.page.Items = append(q.page.Items, kept.spans[i].StoredSpan)
	}
	return true
}

func (q *spanQuery) run(ctx context.Context) error {
	total, err := q.resolve(ctx)
	if err != nil || len(q.streams) == 0 {
		return err
	}
	p := &q.params
	in := "s.stream IN (" + strings.Repeat("?, ", len(q.streams)-1) + "?)"
	sql := sqlstore.SQLite.Spans(*p, sqlstore.Condition{SQL: in, Args: q.streams})
	if !sql.Filtered {
		q.page.Total = total
		if p.SortBy == "" || p.SortBy == "sequence_id" {
			return q.bySequence(ctx, in)
		}
	} else if err := count(ctx, q.c, "spans AS s", &sql, &q.page.Total); err != nil {
		return err
	}
	tail, args := pageIn(&sql)
	from := "spans AS s"
	if p.SortBy == "attempt_id" {
		from = "(SELECT spans.ordinal, spans.stream, spans.span_id, spans.trace_id, spans.parent_id, spans.name, attempts.attempt_id FROM attempts JOIN spans ON spans.stream = attempts.stream WHERE attempts.rollout = ?) AS s"
		args = append([]any{q.rollout}, args...)
	}
	return q.read(ctx, "SELECT s.ordinal AS found FROM "+from+tail, args)
}

// resolve finds the streams that the query reads, and counts their spans.
func (q *spanQuery) resolve(ctx context.Context) (total int, err error) {
	p := &q.params
	sql := "SELECT r.evicted, a.stream, a.spans, r.ordinal, a.attempt_id FROM rollouts AS r LEFT JOIN attempts AS a ON "
	args := []any{p.RolloutID}
	switch p.AttemptID {
	case "":
		sql += "a.rollout = r.ordinal"
	case agl.LatestAttempt:
		sql += "a.ordinal = r.latest"
	default:
		sql += "a.rollout = r.ordinal AND a.attempt_id = ?"
		args = []any{p.AttemptID, p.RolloutID}
	}
	err = q.c.query(ctx, sql+" WHERE r.rollout_id = ?", args, func(r row) error {
		if r.bool(0) {
			return agl.Errorf(agl.CodeEvicted, "Spans for rollout %s have been evicted", p.RolloutID)
		}
		q.rollout = r.int(3)
		if n := r.int(2); n > 0 {
			q.streams = append(q.streams, r.int(1))
			q.ids[r.int(1)] = r.text(4)
			total += int(n)
		}
		return nil
	})
	return total, err
}

// The order by sequence ids, as in the index.
const (
	ascending  = " ORDER BY s.sequence_id, s.start_time, s.end_time, s.ordinal"
	descending = " ORDER BY s.sequence_id DESC, s.start_time, s.end_time, s.ordinal"
)

// bySequence reads a page in the order of sequence ids. The counts of buckets tell
// which sequence ids the page holds, so that only those are read.
func (q *spanQuery) bySequence(ctx context.Context, in string) error {
	p := &q.params
	skip := int64(p.Offset)
	if skip >= int64(q.page.Total) {
		return nil
	}
	backward := p.SortBy != "" && p.Order == agl.Descending
	order := ascending
	if backward {
		order = descending
	}
	args := q.streams
	where := in
	if skip >= minSeek || len(q.streams) > 1 {
		b, err := q.seek(ctx, in, skip, backward)
		if err != nil {
			return err
		}
		where += " AND s.sequence_id BETWEEN ? AND ?"
		args = slices.Concat(args, []any{b.low, b.high})
		skip -= b.passed
	}
	return q.read(ctx, "SELECT s.ordinal AS found FROM spans AS s WHERE "+where+order+" LIMIT ? + 0 OFFSET ?", slices.Concat(args, []any{p.Limit, skip}))
}

// bounds are the sequence ids of a page, and the number of spans before them in the
// order of the page.
type bounds struct {
	low, high int64
	passed    int64
}

// seek returns the bounds of the page.
func (q *spanQuery) seek(ctx context.Context, in string, offset int64, backward bool) (bounds, error) {
	type bucket struct{ number, spans int64 }
	var buckets []bucket
	rest := int64(q.page.Total)
	err := q.c.query(ctx, "SELECT bucket, sum(spans) FROM span_buckets AS s WHERE "+in+" GROUP BY bucket ORDER BY bucket", q.streams, func(r row) error {
		b := bucket{r.int(0), r.int(1)}
		rest -= b.spans
		buckets = append(buckets, b)
		return nil
	})
	if err != nil {
		return bounds{}, err
	}
	// The table has no row for bucket 0, which has the remaining spans.
	at := 0
	for at < len(buckets) && buckets[at].number < 0 {
		at++
	}
	buckets = slices.Insert(buckets, at, bucket{0, rest})
	if backward {
		slices.Reverse(buckets)
	}
	out := bounds{}
	first := 0
	for first < len(buckets)-1 && out.passed+buckets[first].spans <= offset {
		out.passed += buckets[first].spans
		first++
	}
	last, seen := first, out.passed+buckets[first].spans
	for last < len(buckets)-1 && (q.params.Limit < 0 || seen < offset+int64(q.params.Limit)) {
		last++
		seen += buckets[last].spans
	}
	low, high := buckets[first].number, buckets[last].number
	if backward {
		low, high = high, low
	}
	out.low, out.high = low<<bucketBits, high<<bucketBits+(1<<bucketBits-1)
	return out, nil
}

// read reads the documents of the spans that find selects.
func (q *spanQuery) read(ctx context.Context, find string, args []any) error {
	return q.c.query(ctx, selectPayloads+" FROM ("+find+") CROSS JOIN spans AS s ON s.ordinal = found", args, q.take(ctx))
}

const selectPayloads = "SELECT s.ordinal, s.codec, s.size, s.crc, s.payload, s.stream, s.span_id, s.base"

// take adds rows of selectPayloads to the page.
func (q *spanQuery) take(ctx context.Context) func(r row) error {
	return func(r row) error {
		document, err := q.d.codec.decode(r.int(1), r.int(2), r.int(3), r.bytes(4))
		if err != nil {
			return q.damaged(ctx, r.int(0), err)
		}
		q.page.Items = append(q.page.Items, driver.StoredSpan{
			SpanKey: driver.SpanKey{RolloutID: q.params.RolloutID, AttemptID: q.ids[r.int(5)], SpanID: r.text(6)}, Base: r.nullText(7).V, Payload: document,
		})
		return nil
	}
}

// SpanChains implements driver.Driver.
func (d *Driver) SpanChains(ctx context.Context, attempt driver.AttemptKey, ids []string) ([]driver.StoredSpan, error) {
	q := spanQuery{d: d, params: agl.QuerySpansParams{RolloutID: attempt.RolloutID, AttemptID: attempt.AttemptID}, ids: map[int64]string{}}
	err := d.readers.snapshot(ctx, func(c *conn) error {
		q.c = c
		if _, err := q.resolve(ctx); err != nil || len(q.streams) == 0 {
			return err
		}
		return c.query(ctx, selectChains, []any{rawjson.AppendArray(nil, ids, rawjson.AppendString), q.streams[0], q.streams[0]}, q.take(ctx))
	})
	if err != nil {
		return nil, fault(d.path, err)
	}
	return q.page.Items, nil
}

// selectChains takes a list of ids as JSON and, twice, their stream.
const selectChains = `WITH RECURSIVE chain (id) AS (SELECT value FROM json_each(CAST(? AS TEXT)) UNION
	SELECT s.base FROM chain CROSS JOIN spans AS s INDEXED BY spans_id ON s.stream = ? AND s.span_id = chain.id WHERE s.base IS NOT NULL)
	` + selectPayloads + ` FROM chain CROSS JOIN spans AS s INDEXED BY spans_id ON s.stream = ? AND s.span_id = chain.id`

// damaged names a span whose document differs from what was stored.
func (q *spanQuery) damaged(ctx context.Context, ordinal int64, cause error) error {
	what := "a span of rollout " + q.params.RolloutID
	err := q.c.query(ctx, "SELECT s.span_id, a.attempt_id FROM spans AS s LEFT JOIN attempts AS a ON a.rollout = (SELECT ordinal FROM rollouts WHERE rollout_id = ?)"+
		" AND a.stream = s.stream WHERE s.ordinal = ?", []any{q.params.RolloutID, ordinal}, func(r row) error {
		what = "span " + q.params.RolloutID + "/" + r.text(1) + "/" + r.text(0)
		return nil
	})
	if err != nil {
		return err
	}
	return errPayload(q.d.path, what, cause)
}
