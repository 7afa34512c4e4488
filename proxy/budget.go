package proxy

import (
	"container/list"
	"context"
	"sync"
)

// budget bounds the memory that calls take until they are stored. Those that
// run may grow past the limit; new ones wait in line.
type budget struct {
	limit int64

	mu      sync.Mutex
	used    int64
	waiting list.List // of *waiter, the longest wait in front
}

type waiter struct {
	bytes   int64
	granted chan struct{}
}

// fits says whether a new call may start. One always may when nothing runs, so
// that a call larger than the limit is not refused for ever.
func (b *budget) fits(n int64) bool { return b.used == 0 || b.used+n <= b.limit }

// acquire takes n bytes for a new call once there is room and the calls before
// it have theirs, or returns ctx's error.
func (b *budget) acquire(ctx context.Context, n int64) error {
	b.mu.Lock()
	if b.waiting.Len() == 0 && b.fits(n) {
		b.used += n
		b.mu.Unlock()
		return nil
	}
	w := &waiter{bytes: n, granted: make(chan struct{})}
	place := b.waiting.PushBack(w)
	b.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	default:
	}
	b.waiting.Remove(place)
	b.grant()
	return context.Cause(ctx)
}

// full reports whether a call of n bytes would have to wait.
func (b *budget) full(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting.Len() > 0 || !b.fits(n)
}

// grow adds n bytes to a running call's share, negative ones give them back.
func (b *budget) grow(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += n
	if n < 0 {
		b.grant()
	}
}

// held is how many bytes are taken.
func (b *budget) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// grant lets those in front in, as many as fit.
func (b *budget) grant() {
	for front := b.waiting.Front(); front != nil; front = b.waiting.Front() {
		w, _ := front.Value.(*waiter)
		if !b.fits(w.bytes) {
			return
		}
		b.used += w.bytes
		close(w.granted)
		b.waiting.Remove(front)
	}
}
