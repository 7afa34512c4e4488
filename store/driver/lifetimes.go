package driver

import (
	"cmp"
	"time"

	"github.com/agl-go/agl"
)

// Lifetimes bounds the records that every driver deletes by itself. The zero value of each field is its default.
type Lifetimes struct {
	// IdempotencyTTL is the lifetime of idempotency keys; 0 is 24 hours, or 10 minutes for a memory store.
	IdempotencyTTL time.Duration
	// EventTTL and MaxEvents bound the event log; 0 is an hour and 100,000. A driver
	// may keep a few more.
	EventTTL  time.Duration
	MaxEvents int
}

const (
	defaultEventTTL  = time.Hour
	defaultMaxEvents = 100_000
)

// WithDefaults replaces zero values. idempotency is the default of IdempotencyTTL.
func (l Lifetimes) WithDefaults(idempotency time.Duration) Lifetimes {
	l.IdempotencyTTL = cmp.Or(l.IdempotencyTTL, idempotency)
	l.EventTTL = cmp.Or(l.EventTTL, defaultEventTTL)
	l.MaxEvents = cmp.Or(l.MaxEvents, defaultMaxEvents)
	return l
}

// Validate rejects negative values with ErrInvalid. config names the struct in the
// error.
func (l Lifetimes) Validate(config string) error {
	if l.IdempotencyTTL < 0 || l.EventTTL < 0 || l.MaxEvents < 0 {
		return agl.Errorf(agl.CodeInvalid, "%s: IdempotencyTTL %v, EventTTL %v and MaxEvents %d must not be negative",
			config, l.IdempotencyTTL, l.EventTTL, l.MaxEvents)
	}
	return nil
}
