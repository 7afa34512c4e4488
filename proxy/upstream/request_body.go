package upstream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
)

// Body is the body of a request to a backend, in parts.
type Body struct {
	parts [][]byte
	short []byte // a copy of the whole body; nil if that is long
	mu    sync.RWMutex
	freed bool
}

// NewBody returns a body whose parts may share the memory of the agent's request.
func NewBody(parts ...[]byte) *Body {
	b := &Body{parts: parts}
	if b.len() <= maxShort {
		b.short = b.Bytes()
	}
	return b
}

// maxShort is the length of the longest body that is copied, that of net/http's write buffer: a transport sends a body with
// the header of its request in one write if both fit, but only if it knows that its reader does not block.
const maxShort = 4 << 10

// Bytes returns a copy of the body in one piece.
func (b *Body) Bytes() []byte { return bytes.Join(b.parts, nil) }

// Free ends all reading of the parts, after which their memory can be used again. Without it a transport might still read
// them: it may go on for a while after a call has ended.
func (b *Body) Free() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freed = true
}

func (b *Body) len() int64 {
	n := 0
	for _, part := range b.parts {
		n += len(part)
	}
	return int64(n)
}

func (b *Body) reader() io.ReadCloser {
	if b.short != nil {
		return io.NopCloser(bytes.NewReader(b.short)) // net/http knows this type
	}
	return &bodyReader{of: b}
}

// bodyReader reads a body once.
type bodyReader struct {
	of       *Body
	part, at int // the next byte
}

func (r *bodyReader) Read(to []byte) (n int, err error) {
	r.of.mu.RLock()
	defer r.of.mu.RUnlock()
	if r.of.freed {
		return 0, errFreed
	}
	for n < len(to) && r.part < len(r.of.parts) {
		m := copy(to[n:], r.of.parts[r.part][r.at:])
		n += m
		if r.at += m; r.at == len(r.of.parts[r.part]) {
			r.part, r.at = r.part+1, 0
		}
	}
	if n == 0 && len(to) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// writeTo writes what has not been read, at most n bytes, without a copy of it. Until the connection has taken it, Free waits.
func (r *bodyReader) writeTo(to net.Conn, n int64) (int64, error) {
	r.of.mu.RLock()
	defer r.of.mu.RUnlock()
	if r.of.freed {
		return 0, errFreed
	}
	var rest net.Buffers // for one system call
	for ; n > 0 && r.part < len(r.of.parts); r.part, r.at = r.part+1, 0 {
		part := r.of.parts[r.part][r.at:]
		if int64(len(part)) > n {
			rest = append(rest, part[:n])
			r.at += int(n)
			break
		}
		rest = append(rest, part)
		n -= int64(len(part))
	}
	return rest.WriteTo(to)
}

func (*bodyReader) Close() error { return nil }

var errFreed = errors.New("the call has ended")

// ErrTooLong is the error of [ReadBody] for a body that is longer than the limit.
var ErrTooLong = errors.New("body too long")

// FirstRead is the initial buffer size for a body of unknown length, and for any body of
// a client that is not trusted.
const FirstRead = 64 << 10

// ReadBody reads a body of at most limit bytes into the memory of buf, or into new
// memory. length is negative when it is unknown. With an error it returns what it
// has read so far.
func ReadBody(body io.Reader, buf []byte, length, limit int64) ([]byte, error) {
	if length < 0 || length > limit {
		return ReadUntrusted(body, singleBuffer(buf), length, limit, func(int) error { return nil })
	}
	buf = roomFor(buf, int(length))[:length]
	n, err := io.ReadFull(body, buf)
	return buf[:n], err
}

// Memory lends buffers.
type Memory interface {
	Take(n int) []byte // of n bytes or more; nil or less if there is none
	Put(b []byte)
}

// singleBuffer lends itself only. Its borrower looks whether it is large enough.
type singleBuffer []byte

func (b singleBuffer) Take(int) []byte { return b }
func (singleBuffer) Put([]byte)        {}

// ReadUntrusted is [ReadBody] for a client that may announce more than it sends: beyond
// FirstRead, memory is taken as bytes arrive. grow is called before each step with the bytes
// that it adds; its error ends the reading. A short body is read into new memory.
func ReadUntrusted(body io.Reader, memory Memory, length, limit int64, grow func(n int) error) ([]byte, error) {
	if length > limit {
		return nil, ErrTooLong
	}
	if length >= 0 && length <= FirstRead {
		return ReadBody(body, nil, length, limit)
	}
	buf := roomFor(memory.Take(FirstRead), FirstRead)
	for room := FirstRead; int64(len(buf)) != length; {
		if len(buf) == room {
			size := 4 * room // few and large steps, because each may copy everything
			if length >= 0 {
				size = min(2*size, int(length))
			}
			if int64(size) > limit {
				size = int(limit) + 1
			}
			if err := grow(size - room); err != nil {
				return buf, err
			}
			if room = size; cap(buf) < room {
				small := buf
				buf = append(roomFor(memory.Take(room), room), small...)
				memory.Put(small)
			}
		}
		n, err := body.Read(buf[len(buf):room])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return buf, ErrTooLong
		case int64(len(buf)) == length:
			return buf, nil
		case err == io.EOF && length >= 0:
			return buf, io.ErrUnexpectedEOF
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
	return buf, nil
}

// roomFor returns an empty buffer of at least n bytes: buf, if it is large enough.
// Unlike [slices.Grow] it does not clear new memory.
func roomFor(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, 0, n)
	}
	return buf[:0]
}
