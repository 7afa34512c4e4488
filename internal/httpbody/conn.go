package httpbody

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// earlyReplyWait is how long a failed write waits for a reply that the other side has sent.
const earlyReplyWait = time.Second

// DialFunc is the type of [http.Transport.DialContext].
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Dial returns a dial function whose connections take a [Body] without a copy. They keep the reply of a server that refuses a
// long request before it has read it, and closes the connection: net/http drops such a reply if it learns of the failed write first.
func Dial(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c, over: make(chan struct{})}, nil
	}
}

// conn returns the error of a write after everything that has arrived was read.
type conn struct {
	net.Conn

	once sync.Once
	over chan struct{} // closed when nothing more can be read
}

func (c *conn) end() { c.once.Do(func() { close(c.over) }) }

// Read implements [net.Conn].
func (c *conn) Read(to []byte) (int, error) {
	n, err := c.Conn.Read(to)
	if err != nil {
		c.end()
	}
	return n, err
}

// Write implements [net.Conn].
func (c *conn) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	c.awaitReply(err)
	return n, err
}

// ReadFrom implements [io.ReaderFrom], which net/http calls with the body of a request.
func (c *conn) ReadFrom(from io.Reader) (int64, error) {
	if limited, ok := from.(*io.LimitedReader); ok {
		if body, ok := limited.R.(*bodyReader); ok {
			n, err := body.writeTo(c.Conn, limited.N)
			limited.N -= n
			if !errors.Is(err, errFreed) {
				c.awaitReply(err)
			}
			return n, err
		}
	}
	return io.Copy(struct{ io.Writer }{c}, from)
}

// awaitReply waits after a failed write for what the other side has sent.
func (c *conn) awaitReply(failed error) {
	if failed == nil {
		return
	}
	select {
	case <-c.over:
	case <-time.After(earlyReplyWait):
	}
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.end()
	return c.Conn.Close()
}
