// Package httpbody sends bodies of requests without copies of them, and hears servers that answer before they have read
// all of one.
//
//	transport := &http.Transport{DialContext: httpbody.Dial(dialer.DialContext)}
//	body := httpbody.New(head, document, tail)
//	defer body.Free()
//	req.Body, req.ContentLength = body.Reader(), body.Len()
//
// It must not know what a body means.
package httpbody

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
)

// Body is the body of a request, in parts.
type Body struct {
	parts [][]byte
	short []byte // a copy of the whole body; nil if that is long
	mu    sync.RWMutex
	freed bool
}

// New returns a body of parts. Their memory must not change before [Body.Free].
func New(parts ...[]byte) *Body {
	b := &Body{parts: parts}
	if b.Len() <= maxShort {
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

// Len returns the length of the body in bytes.
func (b *Body) Len() int64 {
	n := 0
	for _, part := range b.parts {
		n += len(part)
	}
	return int64(n)
}

// Reader returns a reader of the whole body, for one request.
func (b *Body) Reader() io.ReadCloser {
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

var errFreed = errors.New("the request has ended")
