package memory

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

// events is the log of what changed, bounded by age and number.
type events struct {
	epoch string
	ttl   time.Duration
	most  int
	items []event
	head  int   // items before it are forgotten
	first int64 // the number of items[head]
}

type event struct {
	agl.Event

	at agl.Timestamp
}

func (l *events) init(epoch string, ttl time.Duration, most int) {
	l.epoch, l.ttl, l.most, l.first = epoch, ttl, most, 1
}

func (l *events) append(now agl.Timestamp, list []agl.Event) {
	for _, e := range list {
		l.items = append(l.items, event{Event: e, at: now})
	}
	for len(l.items)-l.head > l.most || l.head < len(l.items) && now.Sub(l.items[l.head].at) > l.ttl {
		l.items[l.head] = event{}
		l.head++
		l.first++
	}
	if l.head > len(l.items)/2 {
		n := copy(l.items, l.items[l.head:])
		clear(l.items[n:])
		l.items, l.head = l.items[:n], 0
	}
}

func (l *events) last() int64 { return l.first + int64(len(l.items)-l.head) - 1 }

func (l *events) id(n int64) string { return l.epoch + "-" + strconv.FormatInt(n, 10) }

// number is the reverse of id; ok is false for ids that are not of this log.
func (l *events) number(id string) (n int64, ok bool) {
	epoch, digits, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && epoch == l.epoch
}

// Events implements store.Driver.
func (d *Driver) Events(_ context.Context, after string, limit int) (store.EventList, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	l := &d.events
	last := l.last()
	out := store.EventList{Last: l.id(last)}
	if after == "" {
		return out, nil
	}
	n, ok := l.number(after)
	if !ok || n < l.first-1 || n > last {
		out.Reset = true
		return out, nil
	}
	from := l.head + int(n+1-l.first)
	for i, e := range l.items[from:min(len(l.items), from+limit)] {
		e.ID = l.id(n + 1 + int64(i))
		out.Events = append(out.Events, e.Event)
	}
	return out, nil
}

// keys remembers idempotency records for a while.
type keys struct {
	ttl   time.Duration
	byKey map[string]store.IdempotencyRecord
	order []store.IdempotencyRecord // by time
}

func (k *keys) init(ttl time.Duration) {
	k.ttl, k.byKey = ttl, map[string]store.IdempotencyRecord{}
}

func (k *keys) get(scope string, now agl.Timestamp) (store.IdempotencyRecord, bool) {
	record, there := k.byKey[scope]
	return record, there && now.Sub(record.CreateTime) <= k.ttl
}

func (k *keys) put(now agl.Timestamp, records []store.IdempotencyRecord, forgotten []string) {
	for _, r := range records {
		k.byKey[r.Scope] = r
		k.order = append(k.order, r)
	}
	for _, scope := range forgotten {
		delete(k.byKey, scope)
	}
	old := 0
	for old < len(k.order) && now.Sub(k.order[old].CreateTime) > k.ttl {
		// The key may have been forgotten and used anew since.
		if r := k.order[old]; k.byKey[r.Scope].CreateTime == r.CreateTime {
			delete(k.byKey, r.Scope)
		}
		k.order[old] = store.IdempotencyRecord{}
		old++
	}
	k.order = k.order[old:]
}
