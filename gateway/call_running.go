package gateway

import (
	"sync"
	"sync/atomic"
)

// calls tracks the running model calls.
type calls struct {
	count atomic.Int64

	mu      sync.Mutex
	running map[string]map[*call]struct{} // by their rollout's id in the store
}

// call is a model call of a rollout.
type call struct{ deleted atomic.Bool }

// enter counts a call as running until leave is called.
func (c *calls) enter(storeID string) (in *call, leave func()) {
	in = &call{}
	c.count.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[storeID] == nil {
		c.running[storeID] = map[*call]struct{}{}
	}
	c.running[storeID][in] = struct{}{}
	return in, func() {
		c.count.Add(-1)
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.running[storeID], in); len(c.running[storeID]) == 0 {
			delete(c.running, storeID)
		}
	}
}

// deleted marks the running calls of a rollout that was deleted.
func (c *calls) deleted(storeID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for in := range c.running[storeID] {
		in.deleted.Store(true)
	}
}
