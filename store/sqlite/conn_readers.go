package sqlite

import (
	"context"
	"errors"
)

// readers are the reading connections, opened on demand.
type readers struct {
	path string
	free chan *conn // a nil connection is opened on demand
}

func (p *readers) init(path string) {
	p.path = path
	p.free = make(chan *conn, maxReaders)
	for range maxReaders {
		p.free <- nil
	}
}

var errReadersClosed = errors.New("the readers are closed")

// do calls read with a connection.
func (p *readers) do(ctx context.Context, read func(c *conn) error) error {
	var c *conn
	var open bool
	select {
	case c, open = <-p.free:
		if !open {
			return errReadersClosed
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	if c == nil {
		var err error
		if c, err = openReader(ctx, p.path); err != nil {
			p.free <- nil
			return err
		}
	}
	err := read(c)
	if err != nil && broken(err) {
		_ = c.close()
		c = nil
	}
	p.free <- c
	return err
}

// snapshot is do in one transaction: read sees one moment.
func (p *readers) snapshot(ctx context.Context, read func(c *conn) error) error {
	return p.do(ctx, func(c *conn) error {
		return c.snapshot(ctx, func() error { return read(c) })
	})
}

func openReader(ctx context.Context, path string) (*conn, error) {
	c, err := connect(path, modeReadOnly)
	if err != nil {
		return nil, err
	}
	if err := pragmas(ctx, c, "busy_timeout = "+itoa(busyTimeout.Milliseconds()), "cache_size = -"+itoa(readerCacheKiB), "query_only = ON"); err != nil {
		_ = c.close()
		return nil, err
	}
	return c, nil
}

// close closes the connections as they are returned.
func (p *readers) close() {
	for range cap(p.free) {
		c, open := <-p.free
		if !open {
			return
		}
		if c != nil {
			_ = c.close()
		}
	}
	close(p.free)
}
