package capture

import (
	"container/list"
	"context"
	"sync"

	"github.com/agl-go/agl/internal/background"
)

// memory limits the bytes that calls hold until they are stored. Running calls may
// exceed the limit; new ones wait in a queue.
type memory struct {
	limit int64

	mu      sync.Mutex
	held    int64
	waiting list.List // of *waiter, the longest wait in front
}

type waiter struct {
	own     int64 // what its call already holds
	bytes   int64 // what it asks for
	granted chan struct{}
}

// Reservation is the memory that one call holds. It belongs to the goroutine that
// serves the call, and to the recorder once the call has ended.
type Reservation struct {
	memory *memory
	bytes  int64
}

// Grow adds n bytes to the reservation; a negative n releases bytes.
func (r *Reservation) Grow(n int) {
	if n != 0 {
		r.bytes += int64(n)
		r.memory.grow(int64(n))
	}
}

// Release releases all of it.
func (r *Reservation) Release() { r.shrink(0) }

// shrink releases all but n bytes.
func (r *Reservation) shrink(n int64) {
	r.memory.grow(n - r.bytes)
	r.bytes = n
}

// fits reports whether a call that holds own bytes may have n more. While no other call
// holds memory it may, because a call larger than the limit could never run otherwise.
func (m *memory) fits(own, n int64) bool { return m.held == own || m.held+n <= m.limit }

// take reserves n bytes even beyond the limit.
func (m *memory) take(n int64) *Reservation {
	m.grow(n)
	return &Reservation{m, n}
}

// acquire adds n bytes to a reservation. New calls are served in the order in which they
// ask, after the calls that hold memory already. Its error is the cause of ctx.
func (m *memory) acquire(ctx context.Context, r *Reservation, n int64) error {
	m.mu.Lock()
	if !m.waits(r.bytes, n) {
		m.held += n
		m.mu.Unlock()
		r.bytes += n
		return nil
	}
	w := &waiter{own: r.bytes, bytes: n, granted: make(chan struct{})}
	var place *list.Element
	if w.own > 0 {
		place = m.waiting.PushFront(w)
	} else {
		place = m.waiting.PushBack(w)
	}
	m.mu.Unlock()
	select {
	case <-w.granted:
		r.bytes += n
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if background.Closed(w.granted) {
		r.bytes += n
		return nil
	}
	m.waiting.Remove(place)
	m.grant()
	return context.Cause(ctx)
}

// full reports whether a call that holds own bytes would have to wait for n more.
func (m *memory) full(own, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waits(own, n)
}

func (m *memory) waits(own, n int64) bool {
	return own == 0 && m.waiting.Len() > 0 || !m.fits(own, n)
}

func (m *memory) grow(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held += n
	if n < 0 {
		m.grant()
	}
}

// bytes returns the memory that all calls hold.
func (m *memory) bytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held
}

// grant serves the waiting calls from the front, as many as fit.
func (m *memory) grant() {
	for front := m.waiting.Front(); front != nil; front = m.waiting.Front() {
		w, _ := front.Value.(*waiter)
		if !m.fits(w.own, w.bytes) {
			return
		}
		m.held += w.bytes
		close(w.granted)
		m.waiting.Remove(front)
	}
}
