package sqlite

import "sync/atomic"

// cache keeps values by key within a number of bytes. It evicts by the clock
// algorithm: a value that was not used during a whole round is evicted. get may run
// concurrently with other gets; every other method needs exclusive access.
type cache[K comparable, V any] struct {
	slots map[K]*slot[K, V]
	ring  []*slot[K, V]
	hand  int
	bytes int64
	most  int64
}

type slot[K comparable, V any] struct {
	key   K
	value V
	size  int64
	at    int // its index in the ring
	used  atomic.Bool
}

// slotBytes is the estimated memory of a slot, its map entry and its place in the ring.
const slotBytes = 160

func newCache[K comparable, V any](most int64) *cache[K, V] {
	return &cache[K, V]{slots: map[K]*slot[K, V]{}, most: most}
}

func (c *cache[K, V]) get(key K) (v V, there bool) {
	s := c.slots[key]
	if s == nil {
		return v, false
	}
	if !s.used.Load() {
		s.used.Store(true)
	}
	return s.value, true
}

func (c *cache[K, V]) has(key K) bool { return c.slots[key] != nil }

func (c *cache[K, V]) put(key K, v V, size int64) {
	size += slotBytes
	if s := c.slots[key]; s != nil {
		c.bytes += size - s.size
		s.value, s.size = v, size
		s.used.Store(true)
	} else {
		s = &slot[K, V]{key: key, value: v, size: size, at: len(c.ring)}
		s.used.Store(true)
		c.slots[key] = s
		c.ring = append(c.ring, s)
		c.bytes += size
	}
	for c.bytes > c.most && len(c.ring) > 0 {
		c.hand %= len(c.ring)
		if s := c.ring[c.hand]; s.used.Load() {
			s.used.Store(false)
			c.hand++
		} else {
			c.drop(s)
		}
	}
}

func (c *cache[K, V]) remove(key K) {
	if s := c.slots[key]; s != nil {
		c.drop(s)
	}
}

func (c *cache[K, V]) drop(s *slot[K, V]) {
	delete(c.slots, s.key)
	last := len(c.ring) - 1
	c.ring[s.at] = c.ring[last]
	c.ring[s.at].at = s.at
	c.ring[last] = nil
	c.ring = c.ring[:last]
	c.bytes -= s.size
}
