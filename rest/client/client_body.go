package client

import "sync"

// maxKeptBody bounds the buffers that are kept for later bodies, in bytes. Allocation is most of the cost of a large
// body.
const maxKeptBody = 8 << 20

// bodies is a pool of memory for large bodies.
type bodies struct{ kept sync.Pool } // of *[]byte

// take returns an empty buffer with room for size bytes.
func (m *bodies) take(size int) []byte {
	if kept, ok := m.kept.Get().(*[]byte); ok && cap(*kept) >= size {
		return (*kept)[:0]
	}
	return make([]byte, 0, size)
}

// put keeps a buffer that nothing reads any longer.
func (m *bodies) put(buffer []byte) {
	if cap(buffer) <= maxKeptBody {
		m.kept.Put(&buffer)
	}
}
