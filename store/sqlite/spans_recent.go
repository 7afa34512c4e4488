package sqlite

import (
	"cmp"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// recentSpans holds all spans of an attempt, in the order of the index by sequence id. They are cached when they are
// committed, because most are read soon, and a reading connection must read its pages of the file again after each commit.
// A value does not change.
type recentSpans struct {
	spans []recentSpan
	bytes int64
}

type recentSpan struct {
	driver.StoredSpan

	sequence   int64
	start, end float64 // see driver.SortTime
}

// spanSize is the estimated memory of a span without its payload.
const spanSize = 256

func bySequence(a, b recentSpan) int {
	return cmp.Or(cmp.Compare(a.sequence, b.sequence), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
}

// with returns the spans together with those that a commit has added.
func (r *recentSpans) with(added []*driver.SpanRecord) *recentSpans {
	next := &recentSpans{spans: r.spans, bytes: r.bytes}
	ordered := true
	for _, s := range added {
		one := recentSpan{driver.StoredSpan{SpanKey: s.SpanKey, Base: s.Base, Payload: s.Payload}, s.SequenceID, driver.SortTime(s.StartTime), driver.SortTime(s.EndTime)}
		if n := len(next.spans); n > 0 && bySequence(next.spans[n-1], one) > 0 && ordered {
			next.spans, ordered = slices.Clone(next.spans), false // r keeps its order
		}
		// This may write to the memory of r, but only after the end of r's spans.
		next.spans = append(next.spans, one)
		next.bytes += spanSize + int64(cap(s.Payload))
	}
	if !ordered {
		slices.SortStableFunc(next.spans, bySequence)
	}
	return next
}

// keepSpans caches the spans that a commit has added to an attempt, if all earlier ones are cached. It is called with d.mu
// locked.
func (d *Driver) keepSpans(a *attemptWork) {
	if len(a.added) == 0 {
		return
	}
	stream := a.row.stream
	before := &recentSpans{}
	if a.was != nil && a.was.stream == stream && a.was.spans > 0 {
		var kept bool
		if before, kept = d.spans.get(stream); !kept {
			return
		}
	}
	if after := before.with(a.added); after.bytes <= d.spans.most/8 { // leave room for other attempts
		d.spans.put(stream, after, after.bytes)
	} else {
		d.spans.remove(stream)
	}
}

// recentSpans returns all spans of a query, nil if they or their attempt are not cached.
func (d *Driver) recentSpans(p *agl.QuerySpansParams) *recentSpans {
	d.mu.RLock()
	defer d.mu.RUnlock()
	a := d.cachedAttempt(p.RolloutID, p.AttemptID)
	switch {
	case a == nil:
		return nil
	case a.spans == 0:
		return &recentSpans{}
	}
	if all, _ := d.spans.get(a.stream); all != nil && int64(len(all.spans)) == a.spans {
		return all
	}
	return nil
}

// cachedAttempt returns the attempt that has all spans of the query, nil if it is not
// cached. It is called with d.mu locked.
func (d *Driver) cachedAttempt(rolloutID, attemptID string) *attemptRow {
	e, there := d.rollouts.get(rolloutID)
	if !there || e.evicted || e.latest == nil {
		return nil
	}
	switch attemptID {
	case agl.LatestAttempt:
		return e.latest
	case "":
		if e.latest.cur.SequenceID == 1 && len(e.older) == 0 {
			return e.latest
		}
		return nil
	}
	return e.attempt(attemptID)
}
