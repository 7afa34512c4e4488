package upstream

import (
	"context"
	"net"
	"sync"
	"time"
)

// patience is how long a failed write waits for what the other side has sent.
const patience = time.Second

// dialPatiently returns a dial function whose connections keep the reply of a server that refuses a long request before it has
// read it, and closes the connection: net/http drops such a reply if it learns of the failed write first.
func dialPatiently(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &patientConn{Conn: c, over: make(chan struct{})}, nil
	}
}

// patientConn returns the error of a write after everything that has arrived was read.
type patientConn struct {
	net.Conn

	once sync.Once
	over chan struct{} // closed when nothing more can be read
}

func (c *patientConn) end() { c.once.Do(func() { close(c.over) }) }

// Read implements [net.Conn].
func (c *patientConn) Read(to []byte) (int, error) {
	n, err := c.Conn.Read(to)
	if err != nil {
		c.end()
	}
	return n, err
}

// Write implements [net.Conn].
func (c *patientConn) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	if err != nil {
		limit := time.NewTimer(patience)
		defer limit.Stop()
		select {
		case <-c.over:
		case <-limit.C:
		}
	}
	return n, err
}

// Close implements [net.Conn].
func (c *patientConn) Close() error {
	c.end()
	return c.Conn.Close()
}
