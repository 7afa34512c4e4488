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
	page, err := d.spansFrom(ctx, p, from)
	if err == nil && from.passed > 0 && !from.holds(p, page) {
		from = pageEnd{}
		page, err = d.spansFrom(ctx, p, from)
	}
	if err != nil {
		return agl.Page[driver.StoredSpan]{}, err
	}
	if inOrder(p) {
		d.ends.keep(of, from.next(page))
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

func (d *Driver) spansFrom(ctx context.Context, p agl.QuerySpansParams, from pageEnd) (agl.Page[placedSpan], error) {
	s := spanSearch(p, from)
	evicted := agl.Errorf(agl.CodeEvicted, "Spans for rollout %s have been evicted", p.RolloutID)
	page, err := find(ctx, d, s, evicted, func(r *row) (placedSpan, error) {
		stored, err := r.stored(p.RolloutID)
		return placedSpan{stored, r.int8()}, err
	})
	page.Offset = p.Offset
	return page, err
}

// spanSearch makes a search of spans. It skips no spans before from, if that is not the zero value.
func spanSearch(p agl.QuerySpansParams, from pageEnd) *search {
	always := []sqlstore.Condition{{SQL: `s.rollout_id = ?`, Args: []any{p.RolloutID}}}
	// Attempts count their spans.
	total := selection{`SELECT COALESCE(sum(a.span_count), 0)::bigint FROM attempts a WHERE a.rollout_id = $1`, []any{p.RolloutID}}
	isAttempt := `s.attempt_id = %s`
	if from.passed > 0 {
		// The expression keeps the primary key out of the plan, for which all spans of the attempt would be sorted. PostgreSQL
		// expects it to be true for half of the rows, so that it reads the first of them in the order of the other index.
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
	attemptID string // of the span
	sequence  int64  // its sequence id
	passed    int    // spans with smaller sequence ids
	total     int    // all spans of the set; spans neither change nor are deleted alone, so an equal total means the same spans
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
	if e.ends == nil || len(e.ends) >= maxPageEnds {
		e.ends = map[spanSet]pageEnd{}
	}
	e.ends[of] = end
}

// holds reports whether the spans before a page that was read from e on are those that e has passed.
func (e pageEnd) holds(p agl.QuerySpansParams, page agl.Page[placedSpan]) bool {
	if page.Total != e.total {
		return false
	}
	if len(page.Items) == 0 {
		return p.Offset >= page.Total
	}
	return p.AttemptID != agl.LatestAttempt || page.Items[0].AttemptID == e.attemptID
}

// next returns the end of a page that was read from e on, or e if the sequence ids do not tell. It is none after the last page.
func (e pageEnd) next(page agl.Page[placedSpan]) pageEnd {
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
	return pageEnd{last.AttemptID, last.sequence, page.Offset + first, page.Total}
}
