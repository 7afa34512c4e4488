package store

import (
	"maps"
	"slices"
	"sync"
)

// finishWaits holds the calls that are blocked until rollouts have finished.
type finishWaits struct {
	mu   sync.Mutex
	byID map[string][]*finishWait
}

// finishWait is one blocked call.
type finishWait struct {
	open  map[string]struct{} // not known to have finished; guarded by finishWaits.mu
	ready chan struct{}       // closed when open is empty
}

func (ws *finishWaits) init() { ws.byID = map[string][]*finishWait{} }

func (ws *finishWaits) add(ids []string) *finishWait {
	w := &finishWait{open: make(map[string]struct{}, len(ids)), ready: make(chan struct{})}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, id := range ids {
		if _, repeated := w.open[id]; !repeated {
			w.open[id] = struct{}{}
			ws.byID[id] = append(ws.byID[id], w)
		}
	}
	return w
}

// ids returns the rollouts that are waited for.
func (ws *finishWaits) ids() []string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Collect(maps.Keys(ws.byID))
}

// finished notifies every wait for the rollout.
func (ws *finishWaits) finished(id string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byID[id] {
		delete(w.open, id)
		if len(w.open) == 0 {
			close(w.ready)
		}
	}
	delete(ws.byID, id)
}

// remove ends a wait.
func (ws *finishWaits) remove(w *finishWait) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for id := range w.open {
		ws.byID[id] = slices.DeleteFunc(ws.byID[id], func(other *finishWait) bool { return other == w })
		if len(ws.byID[id]) == 0 {
			delete(ws.byID, id)
		}
	}
}
