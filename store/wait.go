package store

import (
	"context"
	"maps"
	"slices"
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

// ids returns the rollouts that are waited for.
func (ws *waits) ids() []string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Collect(maps.Keys(ws.byID))
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
