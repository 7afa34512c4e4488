package sqlite

import (
	"context"

	"github.com/agl-go/agl"
)

// state holds the singleton row: identity, queue state, counters and totals, as of the
// last commit.
type state struct {
	identity string
	boot     int64
	clean    bool

	queueClosed     bool
	latestResources agl.Null[string]

	startOrdered bool
	lastStart    float64

	lastRollout int64
	lastAttempt int64
	lastSpan    int64
	firstPlace  int64
	lastPlace   int64
	lastEvent   int64

	rollouts  int64
	attempts  int64
	spans     int64
	spanBytes int64
	resources int64
	workers   int64
	ghosts    int64
}

var errNoState error = &agl.Error{Code: agl.CodeInternal, Message: "sqlite: the database is damaged, it has no state; see `agl db check`"}

func readState(ctx context.Context, c *conn) (s state, err error) {
	found := false
	err = c.query(ctx, `SELECT identity, boot, clean, queue_closed, latest_resources, start_ordered, last_start,
		last_rollout, last_attempt, last_span, first_place, last_place, last_event,
		rollouts, attempts, spans, span_bytes, resources, workers, ghosts FROM state WHERE id = 1`, nil, func(r row) error {
		found = true
		s = state{
			identity: r.text(0), boot: r.int(1), clean: r.bool(2), queueClosed: r.bool(3), latestResources: r.nullText(4),
			startOrdered: r.bool(5), lastStart: r.float(6), lastRollout: r.int(7), lastAttempt: r.int(8), lastSpan: r.int(9),
			firstPlace: r.int(10), lastPlace: r.int(11), lastEvent: r.int(12), rollouts: r.int(13), attempts: r.int(14),
			spans: r.int(15), spanBytes: r.int(16), resources: r.int(17), workers: r.int(18), ghosts: r.int(19),
		}
		return nil
	})
	if err == nil && !found {
		err = errNoState
	}
	return s, err
}

func (s *state) write(ctx context.Context, c *conn) error {
	return c.exec(ctx, `UPDATE state SET boot = ?, clean = ?, queue_closed = ?, latest_resources = ?, start_ordered = ?, last_start = ?,
		last_rollout = ?, last_attempt = ?, last_span = ?, first_place = ?, last_place = ?, last_event = ?,
		rollouts = ?, attempts = ?, spans = ?, span_bytes = ?, resources = ?, workers = ?, ghosts = ? WHERE id = 1`,
		s.boot, s.clean, s.queueClosed, nullText(s.latestResources), s.startOrdered, s.lastStart,
		s.lastRollout, s.lastAttempt, s.lastSpan, s.firstPlace, s.lastPlace, s.lastEvent,
		s.rollouts, s.attempts, s.spans, s.spanBytes, s.resources, s.workers, s.ghosts)
}
