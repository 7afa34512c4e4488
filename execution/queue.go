package execution

import (
	"context"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
)

// withQueue returns a store whose queue can be closed.
func withQueue(store agl.Store) agl.Store {
	if store.Capabilities().CloseQueue {
		return store
	}
	return &closableQueue{Store: store, closed: make(chan struct{})}
}

// closableQueue adds CloseQueue to a store that does not have it, for the runners of this process and for those that it
// serves.
type closableQueue struct {
	agl.Store

	mu     sync.Mutex
	closed chan struct{} // is closed while the queue is
}

func (q *closableQueue) Capabilities() agl.Capabilities {
	can := q.Store.Capabilities()
	can.CloseQueue = true
	return can
}

func (q *closableQueue) CloseQueue(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !background.Closed(q.closed) {
		close(q.closed)
	}
	return nil
}

func (q *closableQueue) OpenQueue(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if background.Closed(q.closed) {
		q.closed = make(chan struct{})
	}
	return nil
}

// longestDequeue bounds how long the store may block before a closed queue is noticed. Interrupting a dequeue instead
// could lose what it has claimed.
const longestDequeue = time.Second

// DequeueRollouts implements agl.Store. A store that does not wait by itself is asked every longestDequeue.
func (q *closableQueue) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	q.mu.Lock()
	closed := q.closed
	q.mu.Unlock()
	deadline := time.Now().Add(p.Wait)
	for {
		if background.Closed(closed) {
			return agl.DequeueResult{Closed: true}, nil
		}
		begin := time.Now()
		p.Wait = max(min(deadline.Sub(begin), longestDequeue), 0)
		got, err := q.Store.DequeueRollouts(ctx, p)
		if err != nil || len(got.Rollouts) > 0 || got.Closed || p.Wait == 0 || p.Limit <= 0 {
			return got, err
		}
		select {
		case <-time.After(p.Wait - time.Since(begin)):
		case <-closed:
		case <-ctx.Done():
			return agl.DequeueResult{}, ctx.Err()
		}
	}
}

// drainedStore is a store whose queue seems closed to runners from when draining is closed.
type drainedStore struct {
	agl.Store

	draining <-chan struct{}
}

// DequeueRollouts implements agl.Store. What arrives as the drain begins is given back.
func (s *drainedStore) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	if background.Closed(s.draining) {
		return agl.DequeueResult{Closed: true}, nil
	}
	if !s.Capabilities().ReturnClaims { // interrupting could lose what was claimed
		return s.Store.DequeueRollouts(ctx, p)
	}
	waiting, stop := background.Until(ctx, s.draining)
	got, err := s.Store.DequeueRollouts(waiting, p)
	stop()
	if !background.Closed(s.draining) || ctx.Err() != nil {
		return got, err
	}
	if claims := agl.ClaimsOf(got.Rollouts...); len(claims) > 0 && s.ReturnClaims(ctx, agl.ReturnClaimsParams{Claims: claims}) != nil {
		return got, err // so somebody has to run them
	}
	return agl.DequeueResult{Closed: true}, nil
}
