package process

import (
	"slices"
	"sync"

	"github.com/agl-go/agl/internal/background"
)

// pool holds the idle processes, the most recently used last.
type pool struct {
	mu       sync.Mutex
	idle     []*kept
	closed   bool
	watchers sync.WaitGroup
}

// take removes and returns the most recently used idle process, or returns nil. It skips processes that have ended:
// watch removes them.
func (p *pool) take() *kept {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, k := range slices.Backward(p.idle) {
		if !background.Closed(k.exited) {
			p.idle = slices.Delete(p.idle, i, i+1)
			return k
		}
	}
	return nil
}

// put returns a process to the pool. It returns false if the process must end instead.
func (p *pool) put(k *kept, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= most || background.Closed(k.exited) || k.isAstray() {
		return false
	}
	p.idle = append(p.idle, k)
	return true
}

// watch removes a process that ends while it is idle, and ends the processes that it leaves behind.
func (p *pool) watch(k *kept) {
	p.watchers.Go(func() {
		<-k.exited
		p.mu.Lock()
		i := slices.Index(p.idle, k)
		if i >= 0 {
			p.idle = slices.Delete(p.idle, i, i+1)
		}
		p.mu.Unlock()
		if i >= 0 {
			k.end() // otherwise the caller of take does
		}
	})
}

func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, k := range idle {
		p.watchers.Go(k.retire)
	}
	p.watchers.Wait()
}
