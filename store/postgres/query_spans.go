package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

// QuerySpans implements driver.Driver.
func (d *Driver) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[driver.StoredSpan], error) {
	of := spanSet{p.RolloutID, p.AttemptID}
	from := d.ends.before(of, p)
	page, newest, err := d.spansFrom(ctx, p, from)
	if err == nil && from.passed > 0 && (page.Total != from.total || newest != from.newest) {
		from = pageEnd{}
		page, newest, err = d.spansFrom(ctx, p, from)
	}
	if err != nil {
		return agl.Page[driver.StoredSpan]{}, err
	}
	if inOrder(p) {
		d.ends.keep(of, from.next(page, newest))
	}
	out := agl.Page[driver.StoredSpan]{Items: make([]driver.StoredSpan, len(page.Items)), Limit: page.Limit, Offset: page.Offset, Total: page.Total}
	for i := range page.Items {
		out.Items[i] = page.Items[i].StoredSpan
	}
	return out, nil
}

// placedSpan is a span with its place in the default order.
type placedSpan struct {
	driver.StoredSpan

	sequence int64
}

// spansFrom also returns the ordinal of the newest attempt whose spans are searched.
func (d *Driver) spansFrom(ctx context.Context, p agl.QuerySpansParams, from pageEnd) (page agl.Page[placedSpan], newest int64, err error) {
	s := spanSearch(p, from, &newest)
	evicted := agl.Errorf(agl.CodeEvicted, "Spans for rollout %s have been evicted", p.RolloutID)
	page, err = find(ctx, d, s, evicted, func(r *row) (placedSpan, error) {
		stored, err := r.stored(p.RolloutID)
		if err != nil {
			return placedSpan{}, err
		}
		return placedSpan{stored, r.int8()}, nil
	})
	page.Offset = p.Offset
	return page, newest, err
}

// spanSearch makes a search of spans. It begins at from, unless that is the zero value, so that the database does not skip the spans
// before. newest gets the ordinal of the newest attempt whose spans are searched.
func spanSearch(p agl.QuerySpansParams, from pageEnd, newest *int64) *search {
	always := []sqlstore.Condition{{SQL: `s.rollout_id = ?`, Args: []any{p.RolloutID}}}
	// Attempts count their spans.
	total := selection{`SELECT COALESCE(sum(a.span_count), 0)::bigint, COALESCE(max(a.ordinal), 0) FROM attempts a WHERE a.rollout_id = $1`, []any{p.RolloutID}}
	isAttempt := `s.attempt_id = %s`
	if from.passed > 0 {
		// Without COALESCE the planner may use the primary key, and sort all spans of the attempt. It guesses that COALESCE is true for
		// half of the rows, so it reads the index in the order of sequence ids until the page is full.
		isAttempt = `COALESCE(s.attempt_id = %s, false)`
		always = append(always, sqlstore.Condition{SQL: `s.sequence_id >= ?`, Args: []any{from.sequence}})
		p.Offset -= from.passed
	}
	switch p.AttemptID {
	case "":
	case agl.LatestAttempt:
		always = append(always, sqlstore.Condition{SQL: fmt.Sprintf(isAttempt, latestOf("?")), Args: []any{p.RolloutID}})
		total.sql += ` AND a.attempt_id = ` + latestOf("$1")
	default:
		always = append(always, sqlstore.Condition{SQL: fmt.Sprintf(isAttempt, "?"), Args: []any{p.AttemptID}})
		total.sql += ` AND a.attempt_id = $2`
		total.args = append(total.args, p.AttemptID)
	}
	q := sqlstore.Postgres.Spans(p, always...)
	s := searchFor("spans", storedColumns+`, s.sequence_id`, `spans s`, &q, p.Paging, &total)
	if !q.Filtered {
		s.more = []any{newest}
	}
	s.guard = &selection{`SELECT evicted FROM rollouts WHERE rollout_id = $1`, []any{p.RolloutID}}
	return s
}

// pageEnds remembers where pages of spans ended. Readers ask for one page after the other by offset, and the database would
// sort all the spans, or skip those before the page, for each of them.
type pageEnds struct {
	mu   sync.Mutex
	ends map[spanSet]pageEnd
}

// spanSet is what a query without filters finds.
type spanSet struct{ rolloutID, attemptID string }

// pageEnd is the place of the last span of a page. The zero value is none.
type pageEnd struct {
	sequence int64 // its sequence id
	passed   int   // spans with smaller sequence ids
	// Spans do not change, and are removed only with their attempt or their rollout. Attempts are numbered for ever. So the set has
	// the same spans as long as it has as many of them, and the same newest attempt.
	total  int
	newest int64 // its ordinal
}

// inOrder reports whether a query has no filters, and the order of sequence ids.
func inOrder(p agl.QuerySpansParams) bool {
	q := sqlstore.Postgres.Spans(p)
	return !q.Filtered && (p.SortBy == "" || p.SortBy == "sequence_id" && p.Order != agl.Descending)
}

// before returns the end of a page that came before the one of the query.
func (e *pageEnds) before(of spanSet, p agl.QuerySpansParams) pageEnd {
	if p.Offset == 0 || !inOrder(p) {
		return pageEnd{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if end := e.ends[of]; end.passed <= p.Offset {
		return end
	}
	return pageEnd{}
}

// maxPageEnds is how many sets of spans are read at once without sorting them for each page.
const maxPageEnds = 1024

func (e *pageEnds) keep(of spanSet, end pageEnd) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if end.passed == 0 {
		delete(e.ends, of)
		return
	}
	if _, kept := e.ends[of]; e.ends == nil || !kept && len(e.ends) >= maxPageEnds {
		e.ends = map[spanSet]pageEnd{}
	}
	e.ends[of] = end
}

// next returns the end of a page that was read from e on, or e if all its spans have one sequence id. After the last page it is the zero
// value.
func (e pageEnd) next(page agl.Page[placedSpan], newest int64) pageEnd {
	n := len(page.Items)
	if n == 0 || page.Offset+n >= page.Total {
		return pageEnd{}
	}
	last := page.Items[n-1]
	first := n - 1
	for first > 0 && page.Items[first-1].sequence == last.sequence {
		first--
	}
	if first == 0 {
		return e
	}
	return pageEnd{last.sequence, page.Offset + first, page.Total, newest}
}
