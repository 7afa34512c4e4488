package exchange

import (
	"sync"

	"github.com/agl-go/agl/proxy/upstream"
)

// held is the memory of a call's request and reply. Its fields are nil where there is none.
type held struct {
	pool    *requestPool
	request []byte // from the pool, or for it
	plans   *planner
	reply   *upstream.Reply
}

// free releases the memory. The record of the call must have been built.
func (h *held) free() {
	if h.reply != nil {
		h.reply.Free()
	}
	if h.plans != nil {
		h.plans.free()
	}
	h.pool.Put(h.request)
}

// requestPool keeps the memory of long requests for the next ones: to allocate it takes longer than to read it.
type requestPool struct{ first, rest sync.Pool } // first has what [upstream.ReadUntrusted] may take before a body arrives

// Take returns a buffer for n bytes, or nil if there is none that fits: the memory that a call is known to hold is at least a
// quarter of what it holds.
func (p *requestPool) Take(n int) []byte {
	pool := &p.rest
	if n <= upstream.FirstRead {
		pool = &p.first
	}
	b, _ := pool.Get().(*[]byte)
	if b == nil {
		return nil
	}
	if cap(*b) < n || cap(*b) > 4*n {
		pool.Put(b)
		return nil
	}
	return *b
}

// Put gives a buffer to the next requests.
func (p *requestPool) Put(b []byte) {
	switch {
	case cap(b) < upstream.FirstRead || cap(b) > maxPooled:
	case cap(b) <= 4*upstream.FirstRead:
		p.first.Put(&b)
	default:
		p.rest.Put(&b)
	}
}
