package server

import (
	"context"
	"sync"
)

// repeats knows which dequeues with an idempotency key are being answered. A claim whose answer was lost must not go back to the
// queue if its caller has asked again meanwhile, because the repeat gets the same claim.
type repeats struct {
	mu    sync.Mutex
	byKey map[string]*repeated
}

// repeated are the dequeues with one key.
type repeated struct {
	open   int           // guarded by repeats.mu
	turn   chan struct{} // holds a token while latest is read or written, and while claims are taken back
	latest *exchange
}

// enter notes that a dequeue has arrived. It waits while claims of an earlier one are being taken back.
func (r *repeats) enter(ctx context.Context, key string, x *exchange) (of *repeated, leave func(), err error) {
	r.mu.Lock()
	if of = r.byKey[key]; of == nil {
		of = &repeated{turn: make(chan struct{}, 1)}
		if r.byKey == nil {
			r.byKey = map[string]*repeated{}
		}
		r.byKey[key] = of
	}
	of.open++
	r.mu.Unlock()
	leave = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if of.open--; of.open == 0 {
			delete(r.byKey, key)
		}
	}
	select {
	case of.turn <- struct{}{}:
		of.latest = x
		<-of.turn
		return of, leave, nil
	case <-ctx.Done():
		leave()
		return nil, nil, ctx.Err()
	}
}

// unlessRepeated calls takeBack, unless the caller of x has asked again.
func (of *repeated) unlessRepeated(x *exchange, takeBack func()) {
	of.turn <- struct{}{}
	defer func() { <-of.turn }()
	if of.latest == x {
		takeBack()
	}
}
