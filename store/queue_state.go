package store

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// setClosed opens or closes the queue.
func (s *Store) setClosed(ctx context.Context, method string, closed bool) error {
	_, err := doWrite(ctx, s, method, nil, func(*driver.LoadParams) {}, func(w *unitOfWork) (struct{}, error) {
		if w.queueClosed == closed {
			return struct{}{}, nil
		}
		w.queueClosed = closed
		w.changes.QueueClosed = agl.Some(closed)
		status := "open"
		if closed {
			status = "closed"
		}
		w.changes.Events = append(w.changes.Events, agl.Event{Kind: agl.EventQueue, Status: status})
		return struct{}{}, nil
	})
	return err
}

// CloseQueue implements agl.Store.
func (s *Store) CloseQueue(ctx context.Context) error { return s.setClosed(ctx, "CloseQueue", true) }

// OpenQueue implements agl.Store.
func (s *Store) OpenQueue(ctx context.Context) error { return s.setClosed(ctx, "OpenQueue", false) }
