package store

import (
	"context"
	"iter"
	"sync"

	"github.com/agl-go/agl"
)

// signal wakes any number of goroutines.
type signal struct {
	mu sync.Mutex
	c  chan struct{}
}

func (s *signal) init() { s.c = make(chan struct{}) }

// next returns a channel that the next broadcast closes.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.c)
	s.c = make(chan struct{})
}

// eventPage is how many events are read at once.
const eventPage = 512

// Events implements agl.Store.
func (s *Store) Events(ctx context.Context, p agl.EventsParams) iter.Seq2[agl.Event, error] {
	return func(yield func(agl.Event, error) bool) {
		end, err := s.begin(ctx, "Events")
		defer func() { end(err) }()
		s.eventful.Add(1)
		defer s.eventful.Add(-1)
		after := p.Since
		if err == nil && after == "" {
			var list EventList
			list, err = s.driver.Events(ctx, "", 0)
			after = list.Last
		}
		for err == nil {
			woken := s.signal.next()
			var list EventList
			if list, err = s.driver.Events(ctx, after, eventPage); err != nil {
				break
			}
			if list.Reset {
				list.Events = append(list.Events, agl.Event{ID: list.Last, Kind: agl.EventReset})
			}
			for _, e := range list.Events {
				if !yield(e, nil) {
					return
				}
				after = e.ID
			}
			if len(list.Events) > 0 {
				continue
			}
			select {
			case <-woken:
			case <-ctx.Done():
				err = ctx.Err()
			case <-s.closing:
				err = errClosed()
			}
		}
		yield(agl.Event{}, err)
	}
}
