package httpserver

import (
	"net"
	"sync"
	"time"
)

const (
	// stallTimeout bounds the time in which a client must take writePiece bytes of an answer: a
	// client that takes nothing keeps its answer in memory, and a model call running at its
	// backend.
	stallTimeout = 2 * time.Minute
	writePiece   = 256 << 10
)

// stallListener is a listener whose connections are closed when their clients take nothing.
type stallListener struct{ net.Listener }

func (l stallListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &stallConn{Conn: conn}, nil
}

// stallConn gives each piece that is written to it a deadline, unless a handler has set one.
type stallConn struct {
	net.Conn

	mu     sync.Mutex
	given  bool      // a deadline was set by others
	extend time.Time // when its own is moved
}

func (c *stallConn) SetDeadline(t time.Time) error {
	c.others(t)
	return c.Conn.SetDeadline(t)
}

func (c *stallConn) SetWriteDeadline(t time.Time) error {
	c.others(t)
	return c.Conn.SetWriteDeadline(t)
}

// others records that a handler has set a deadline, or removed it.
func (c *stallConn) others(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given, c.extend = !t.IsZero(), time.Time{}
}

func (c *stallConn) Write(p []byte) (n int, err error) {
	for first := true; first || len(p) > 0 && err == nil; first = false {
		c.allow(time.Now())
		var written int
		written, err = c.Conn.Write(p[:min(len(p), writePiece)])
		n, p = n+written, p[written:]
	}
	return n, err
}

// allow gives the next piece its time. The deadline is moved seldom, because that costs more than
// most writes.
func (c *stallConn) allow(now time.Time) {
	const seldom = 8
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.given && !now.Before(c.extend) {
		_ = c.Conn.SetWriteDeadline(now.Add(stallTimeout)) // a closed connection needs none
		c.extend = now.Add(stallTimeout / seldom)
	}
}
