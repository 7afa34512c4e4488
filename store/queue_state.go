package store

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// queueCommand opens or closes the queue.
type queueCommand struct {
	header

	closed bool
}

func (*queueCommand) load(*driver.LoadParams) {}

func (c *queueCommand) run(w *unitOfWork) error {
	if w.queueClosed == c.closed {
		return nil
	}
	w.queueClosed = c.closed
	w.changes.QueueClosed = agl.Some(c.closed)
	status := "open"
	if c.closed {
		status = "closed"
	}
	w.changes.Events = append(w.changes.Events, agl.Event{Kind: agl.EventQueue, Status: status})
	return nil
}

// CloseQueue implements agl.Store.
func (s *Store) CloseQueue(ctx context.Context) error {
	return s.run(ctx, "CloseQueue", nil, func() error {
		return s.submit(ctx, &queueCommand{closed: true})
	})
}

// OpenQueue implements agl.Store.
func (s *Store) OpenQueue(ctx context.Context) error {
	return s.run(ctx, "OpenQueue", nil, func() error {
		return s.submit(ctx, &queueCommand{})
	})
}
