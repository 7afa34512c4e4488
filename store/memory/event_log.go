package memory

import (
	"context"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// events is the log of what changed, bounded by age and number. It is kept in
// chunks, so that neither appending nor deleting moves the other events.
type events struct {
	epoch  string
	ttl    time.Duration
	most   int
	chunks [][]event
	base   int64 // the number of the first event of the first chunk
	first  int64 // the number of the oldest event that is kept
	next   int64 // the number of the next event
}

type event struct {
	agl.Event

	at agl.Timestamp
}

const eventChunk = 512

func (l *events) init(epoch string, ttl time.Duration, most int) {
	l.epoch, l.ttl, l.most = epoch, ttl, most
	l.base, l.first, l.next = 1, 1, 1
}

func (l *events) append(now agl.Timestamp, list []agl.Event) {
	for _, e := range list {
		last := len(l.chunks) - 1
		if last < 0 || len(l.chunks[last]) == eventChunk {
			l.chunks = append(l.chunks, make([]event, 0, eventChunk))
			last++
		}
		l.chunks[last] = append(l.chunks[last], event{Event: e, at: now})
		l.next++
	}
	for l.first < l.next && (l.next-l.first > int64(l.most) || now.Sub(l.at(l.first).at) > l.ttl) {
		l.first++
		if l.first-l.base == eventChunk {
			l.chunks[0] = nil
			l.chunks = l.chunks[1:]
			l.base = l.first
		}
	}
}

func (l *events) at(n int64) *event {
	i := n - l.base
	return &l.chunks[i/eventChunk][i%eventChunk]
}

func (l *events) id(n int64) string { return driver.EventID(l.epoch, n) }

// Events implements driver.Driver.
func (d *Driver) Events(_ context.Context, after string, limit int) (driver.EventList, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	l := &d.events
	out := driver.EventList{Last: l.id(l.next - 1)}
	if after == "" {
		return out, nil
	}
	seen, ok := driver.EventNumber(l.epoch, after)
	if !ok || seen < l.first-1 || seen >= l.next {
		out.Reset = true
		return out, nil
	}
	for n := seen + 1; n < min(l.next, seen+1+int64(limit)); n++ {
		e := l.at(n).Event
		e.ID = l.id(n)
		out.Events = append(out.Events, e)
	}
	return out, nil
}

// keys keeps idempotency records until they expire.
type keys struct {
	ttl   time.Duration
	byKey map[string]driver.IdempotencyRecord
	order []driver.IdempotencyRecord // by time
}

func (k *keys) init(ttl time.Duration) {
	k.ttl, k.byKey = ttl, map[string]driver.IdempotencyRecord{}
}

func (k *keys) get(scope string, now agl.Timestamp) (driver.IdempotencyRecord, bool) {
	record, there := k.byKey[scope]
	return record, there && now.Sub(record.CreateTime) <= k.ttl
}

func (k *keys) put(now agl.Timestamp, records []driver.IdempotencyRecord, forgotten []string) {
	for _, r := range records {
		k.byKey[r.Scope] = r
		k.order = append(k.order, r)
	}
	for _, scope := range forgotten {
		delete(k.byKey, scope)
	}
	old := 0
	for old < len(k.order) && now.Sub(k.order[old].CreateTime) > k.ttl {
		// The key may have been revoked and used again since.
		if r := k.order[old]; k.byKey[r.Scope].CreateTime == r.CreateTime {
			delete(k.byKey, r.Scope)
		}
		k.order[old] = driver.IdempotencyRecord{}
		old++
	}
	k.order = k.order[old:]
}
