package access

import (
	"context"
	"crypto/sha256"
	"maps"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

const (
	// StoreTTL is how long a store uses what it read about a key from its database.
	StoreTTL = 400 * time.Millisecond
	// AskTTL is how long another server uses the store's answer about a key. A revoked key is refused everywhere
	// after the sum of both.
	AskTTL = 400 * time.Millisecond

	maxCached     = 1 << 14
	lookupTimeout = 5 * time.Second
)

// Cache is a [Checker] that caches answers. Concurrent checks of one key share one lookup.
type Cache struct {
	lookup func(ctx context.Context, key string) (Caller, error)
	ttl    time.Duration

	mu      sync.Mutex
	entries map[[sha256.Size]byte]*cached // by the SHA-256 of the key
}

type cached struct {
	ready  chan struct{} // closed when the other fields are set
	until  time.Time     // zero if the answer is only for the checks that wait for it
	caller Caller
	err    error
}

// NewCache returns a cache of lookup, which returns CodeUnauthorized for an invalid key. An answer is used until ttl
// after the call of lookup.
func NewCache(lookup func(ctx context.Context, key string) (Caller, error), ttl time.Duration) *Cache {
	return &Cache{lookup: lookup, ttl: ttl, entries: map[[sha256.Size]byte]*cached{}}
}

// Check implements [Checker].
func (c *Cache) Check(ctx context.Context, key string) (Caller, error) {
	id, ok := keyID(key)
	if !ok {
		return Caller{}, UnknownKey(key)
	}
	digest := sha256.Sum256([]byte(key))
	now := time.Now()
	c.mu.Lock()
	e := c.entries[digest]
	mine := e == nil || e.expired(now)
	if mine {
		e = &cached{ready: make(chan struct{})}
		makeRoom(c.entries, maxCached, func(e *cached) bool { return e.expired(now) })
		c.entries[digest] = e
	}
	c.mu.Unlock()
	if mine {
		c.fill(ctx, e, key, now)
	}
	select {
	case <-e.ready:
	case <-ctx.Done():
		return Caller{}, ctx.Err()
	}
	if e.err == nil && !e.caller.Expire.IsZero() && !time.Now().Before(e.caller.Expire) {
		return Caller{}, errEnded(id, StateExpired)
	}
	return e.caller, e.err
}

// fill looks a key up. Other checks may wait for the answer, so the lookup continues when ctx is cancelled.
func (c *Cache) fill(ctx context.Context, e *cached, key string, now time.Time) {
	defer close(e.ready)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	e.caller, e.err = c.lookup(ctx, key)
	if e.err == nil || agl.ErrorCode(e.err) == agl.CodeUnauthorized {
		e.until = now.Add(c.ttl)
	}
}

// expired reports whether there is an answer that is not used any longer.
func (e *cached) expired(now time.Time) bool {
	select {
	case <-e.ready:
		return !now.Before(e.until)
	default:
		return false
	}
}

// makeRoom drops what has expired from a map with most entries or more, and everything if that does not help.
func makeRoom[K comparable, V any](entries map[K]V, most int, expired func(V) bool) {
	if len(entries) < most {
		return
	}
	maps.DeleteFunc(entries, func(_ K, v V) bool { return expired(v) })
	if len(entries) >= most {
		clear(entries)
	}
}

// Forget makes later checks look keys up again.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
}
