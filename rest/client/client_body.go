package client

import (
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
)

// maxKeptBody bounds the buffers that are kept for later bodies, in bytes. Allocation is most of the cost of a large
// body.
const maxKeptBody = 8 << 20

// bodies is a pool of memory for large bodies.
type bodies struct{ kept sync.Pool } // of *[]byte

// body is a request's body. A transport may still read it after the answer has arrived, so its memory is reused only
// when the operation is done and all readers are closed.
type body struct {
	bytes []byte
	from  *bodies
	refs  atomic.Int32
}

// take returns an empty body with room for size bytes.
func (m *bodies) take(size int) *body {
	b := &body{from: m}
	if kept, ok := m.kept.Get().(*[]byte); ok && cap(*kept) >= size {
		b.bytes = (*kept)[:0]
	} else {
		b.bytes = make([]byte, 0, size)
	}
	b.refs.Add(1)
	return b
}

func (b *body) done() {
	if b.refs.Add(-1) == 0 && cap(b.bytes) <= maxKeptBody {
		b.from.kept.Put(&b.bytes)
	}
}

// open returns a reader of the body.
func (b *body) open() io.ReadCloser {
	b.refs.Add(1)
	return &bodyReader{body: b, rest: b.bytes}
}

// bodyReader reads a body until it is closed. HTTP/2 may close it during a Read.
type bodyReader struct {
	mu   sync.Mutex
	body *body // nil once closed
	rest []byte
}

// Read implements [io.Reader].
func (r *bodyReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.body == nil:
		return 0, fs.ErrClosed
	case len(r.rest) == 0:
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close implements [io.Closer].
func (r *bodyReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body != nil {
		r.body.done()
		r.body, r.rest = nil, nil
	}
	return nil
}
