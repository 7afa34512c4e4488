package store

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// waits are the calls that are blocked until rollouts have finished.
type waits struct {
	mu   sync.Mutex
	byID map[string][]*wait
}

// wait is one blocked call.
type wait struct {
	left  map[string]struct{} // not known to be finished; guarded by waits.mu
	ready chan struct{}       // closed when left is empty
}

func (ws *waits) init() { ws.byID = map[string][]*wait{} }

func (ws *waits) add(ids []string) *wait {
	w := &wait{left: make(map[string]struct{}, len(ids)), ready: make(chan struct{})}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, id := range ids {
		if _, repeated := w.left[id]; !repeated {
			w.left[id] = struct{}{}
			ws.byID[id] = append(ws.byID[id], w)
		}
	}
	return w
}

// finished tells every wait on the rollout.
func (ws *waits) finished(id string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byID[id] {
		w.strike(id)
	}
	delete(ws.byID, id)
}

func (w *wait) strike(id string) {
	if _, there := w.left[id]; there {
		delete(w.left, id)
		if len(w.left) == 0 {
			close(w.ready)
		}
	}
}

// remove ends a wait.
func (ws *waits) remove(w *wait) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for id := range w.left {
		others := ws.byID[id][:0]
		for _, other := range ws.byID[id] {
			if other != w {
				others = append(others, other)
			}
		}
		if len(others) == 0 {
			delete(ws.byID, id)
		} else {
			clear(ws.byID[id][len(others):])
			ws.byID[id] = others
		}
	}
}

// WaitForRollouts implements agl.Store.
func (s *Store) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) (_ []agl.Rollout, err error) {
	end, err := s.begin(ctx, "WaitForRollouts")
	defer func() { end(err) }()
	if err != nil {
		return nil, err
	}
	finished, open, err := s.finished(ctx, p.RolloutIDs)
	if err != nil || len(open) == 0 || p.Timeout.Valid && p.Timeout.V <= 0 {
		return finished, err
	}
	var timeout <-chan time.Time
	if p.Timeout.Valid {
		c, stop := s.clock.NewTimer(p.Timeout.V)
		defer stop()
		timeout = c
	}
	for len(open) > 0 {
		over, err := s.waitOnce(ctx, open, timeout)
		if err != nil {
			return nil, err
		}
		finished, open, err = s.finished(ctx, p.RolloutIDs)
		if err != nil || over {
			return finished, err
		}
		// A rollout may have been reopened meanwhile: then the wait goes on.
	}
	return finished, nil
}

// waitOnce waits until each of the rollouts has finished, or timeout.
func (s *Store) waitOnce(ctx context.Context, ids []string, timeout <-chan time.Time) (over bool, err error) {
	w := s.waits.add(ids)
	defer s.waits.remove(w)
	// Those that finished before the wait was known are looked for once more.
	_, open, err := s.finished(ctx, ids)
	if err != nil {
		return false, err
	}
	if len(open) < len(ids) {
		return false, nil
	}
	select {
	case <-w.ready:
		return false, nil
	case <-timeout:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-s.closing:
		return false, errClosed()
	}
}

// finished splits the rollouts that exist into those that are finished and the
// ids of the others.
func (s *Store) finished(ctx context.Context, ids []string) (finished []agl.Rollout, open []string, err error) {
	found, err := s.driver.Rollouts(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	finished = []agl.Rollout{}
	for i := range found {
		if found[i].Status.Finished() {
			finished = append(finished, found[i].Rollout)
		} else {
			open = append(open, found[i].RolloutID)
		}
	}
	return finished, open, nil
}

// signal wakes any number of goroutines.
type signal struct {
	mu sync.Mutex
	c  chan struct{}
}

func (s *signal) init() { s.c = make(chan struct{}) }

// next returns a channel that the next broadcast closes.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.c)
	s.c = make(chan struct{})
}

// eventPage is how many events are read at once.
const eventPage = 512

// Events implements agl.Store.
func (s *Store) Events(ctx context.Context, p agl.EventsParams) iter.Seq2[agl.Event, error] {
	return func(yield func(agl.Event, error) bool) {
		end, err := s.begin(ctx, "Events")
		defer func() { end(err) }()
		s.eventful.Add(1)
		defer s.eventful.Add(-1)
		after := p.Since
		if err == nil && after == "" {
			var list EventList
			list, err = s.driver.Events(ctx, "", 0)
			after = list.Last
		}
		for err == nil {
			woken := s.signal.next()
			var list EventList
			if list, err = s.driver.Events(ctx, after, eventPage); err != nil {
				break
			}
			if list.Reset {
				list.Events = append(list.Events, agl.Event{ID: list.Last, Kind: agl.EventReset})
			}
			for _, e := range list.Events {
				if !yield(e, nil) {
					return
				}
				after = e.ID
			}
			if len(list.Events) > 0 {
				continue
			}
			select {
			case <-woken:
			case <-ctx.Done():
				return
			case <-s.closing:
				return
			}
		}
		if !agl.IsContextError(err) {
			yield(agl.Event{}, err)
		}
	}
}

// recheckCommand makes the next batch look at the queue for the waiters.
type recheckCommand struct {
	header

	store *Store
}

func (*recheckCommand) load(*LoadParams) {}

func (c *recheckCommand) run(*work) error {
	c.store.recheck = true
	return nil
}

// notice passes on what another process has committed.
func (s *Store) notice(ctx context.Context, n Notice) error {
	if len(n.Rollouts) > 0 {
		found, err := s.driver.Rollouts(ctx, n.Rollouts)
		if err != nil {
			return err
		}
		known := make(map[string]bool, len(found))
		for i := range found {
			r := &found[i]
			known[r.RolloutID] = true
			if r.Attempt != nil {
				s.deadlines.set(&r.Rollout, r.Attempt)
			}
			if r.Status.Finished() {
				s.waits.finished(r.RolloutID)
			}
		}
		for _, id := range n.Rollouts {
			if !known[id] {
				s.deadlines.remove(id)
				s.waits.finished(id)
			}
		}
	}
	s.signal.broadcast()
	if n.Queue {
		return s.submit(ctx, &recheckCommand{store: s})
	}
	return nil
}
