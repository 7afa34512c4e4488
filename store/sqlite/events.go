package sqlite

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

// eventRow is a row of the event log without its events.
type eventRow struct {
	first int64
	count int64
	time  agl.Timestamp
}

// expired reports whether all events of a row have expired.
func (d *Driver) expired(e eventRow, now agl.Timestamp, last int64) bool {
	return e.first+e.count-1 <= last-int64(d.config.MaxEvents) || now.Sub(e.time) > d.config.EventTTL
}

func (s *state) eventID(n int64) string { return driver.EventID(s.identity, n) }

// Events implements driver.Driver.
func (d *Driver) Events(ctx context.Context, after string, limit int) (driver.EventList, error) {
	d.mu.RLock()
	s := d.state
	d.mu.RUnlock()
	out := driver.EventList{Last: s.eventID(s.lastEvent)}
	if after == "" {
		return out, nil
	}
	seen, ok := driver.EventNumber(s.identity, after)
	switch {
	case !ok || seen > s.lastEvent || seen < 0:
		out.Reset = true
		return out, nil
	case seen == s.lastEvent:
		return out, nil
	}
	if err := d.readers.snapshot(ctx, func(c *conn) error { return readEvents(ctx, c, &s, seen, limit, &out) }); err != nil {
		return driver.EventList{}, fault(d.path, err)
	}
	return out, nil
}

func readEvents(ctx context.Context, c *conn, s *state, seen int64, limit int, out *driver.EventList) error {
	// The row that holds the event after seen; there is none if that event has expired.
	from := int64(-1)
	err := c.query(ctx, "SELECT first, count FROM events WHERE first <= ? ORDER BY first DESC LIMIT 1", []any{seen + 1}, func(r row) error {
		if r.int(0)+r.int(1) > seen+1 {
			from = r.int(0)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if from < 0 {
		out.Reset = true
		return nil
	}
	return c.query(ctx, "SELECT first, events FROM events WHERE first >= ? ORDER BY first", []any{from}, func(r row) error {
		var events []agl.Event
		if err := rawjson.Unmarshal(r.bytes(1), &events); err != nil {
			return agl.Errorf(agl.CodeInternal, "sqlite: the events from %d on are damaged; see `agl db check`: %w", r.int(0), err)
		}
		for i := range events {
			n := r.int(0) + int64(i)
			switch {
			case n <= seen:
				continue
			case n > s.lastEvent || len(out.Events) == limit:
				return errStop
			}
			events[i].ID = s.eventID(n)
			out.Events = append(out.Events, events[i])
		}
		return nil
	})
}

// read reads the oldest record of each kind.
func (o *oldest) read(ctx context.Context, c *conn) error {
	var err error
	if o.events, err = one(ctx, c, "SELECT first, count, time FROM events ORDER BY first LIMIT 1", nil, func(r row) (agl.Null[eventRow], error) {
		return agl.Some(eventRow{first: r.int(0), count: r.int(1), time: r.time(2)}), nil
	}); err != nil {
		return err
	}
	if o.key, err = one(ctx, c, "SELECT create_time FROM keys ORDER BY ordinal LIMIT 1", nil, func(r row) (agl.Null[agl.Timestamp], error) {
		return r.nullTime(0), nil
	}); err != nil {
		return err
	}
	garbage, err := c.number(ctx, "SELECT 1 FROM garbage LIMIT 1")
	o.garbage = garbage > 0
	return err
}
