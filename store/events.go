package store

import (
	"context"
	"iter"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

const (
	// eventPage is the number of events in one query.
	eventPage = 512
	// fewEvents is the largest number of events that are sent one by one to readers that only want to know when to
	// look again.
	fewEvents = 128
)

// Events implements agl.Store. Without Since it yields changes after this call, not after the first read, so a caller
// may announce the stream before it reads from it.
func (s *Store) Events(ctx context.Context, p agl.EventsParams) iter.Seq2[agl.Event, error] {
	start := time.Now()
	var newest driver.EventList
	var failed error
	if p.Since == "" {
		newest, failed = s.readEvents(ctx, "", 0)
		p.Since = newest.Last
	}
	return func(yield func(agl.Event, error) bool) {
		stream := call{store: s, method: "Events", start: start}
		err := failed
		if err == nil {
			err = s.streamEvents(ctx, p, func(e agl.Event) bool { return yield(e, nil) })
		}
		stream.observe(err)
		if err != nil {
			yield(agl.Event{}, err)
		}
	}
}

// streamEvents yields the events after p.Since until an error, or until yield returns false. While the
// reader handles an event, the stream does not count as a call in flight, so that a slow
// reader does not delay Close.
func (s *Store) streamEvents(ctx context.Context, p agl.EventsParams, yield func(agl.Event) bool) error {
	s.readers.Add(1)
	defer s.readers.Add(-1)
	after, most := p.Since, eventPage
	if p.Every > 0 {
		most = fewEvents + 1
	}
	for {
		woken := s.signal.next()
		list, err := s.readEvents(ctx, after, most)
		if err != nil {
			return err
		}
		if p.Every > 0 && len(list.Events) == most {
			if list, err = s.readEvents(ctx, "", 0); err != nil {
				return err
			}
			list.Reset = true
		}
		if list.Reset {
			list.Events = append(list.Events, agl.Event{ID: list.Last, Kind: agl.EventReset})
		}
		for _, e := range list.Events {
			if !yield(e) {
				return nil
			}
			after = e.ID
		}
		switch {
		case len(list.Events) == 0:
			err = awaitEvents(ctx, s, woken)
		case p.Every > 0:
			timer, stop := s.clock.NewTimer(p.Every)
			err = awaitEvents(ctx, s, timer)
			stop()
		}
		if err != nil {
			return err
		}
	}
}

// awaitEvents waits until there may be events again, or until the stream must end.
func awaitEvents[T any](ctx context.Context, s *Store, again <-chan T) error {
	select {
	case <-again:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return errClosed()
	}
}

// ReadEvents returns up to limit events after the one with the id since, without waiting for more. If events after
// that id are missing, because it is too old or unknown, it returns a single agl.EventReset with the id of the newest
// event.
func (s *Store) ReadEvents(ctx context.Context, since string, limit int) ([]agl.Event, error) {
	return do(ctx, s, "ReadEvents", nil, func() ([]agl.Event, error) {
		if since == "" || limit < 1 {
			return nil, agl.Errorf(agl.CodeInvalid, "since and limit: got %q and %d, must be an id and a positive number", since, limit)
		}
		list, err := s.driver.Events(ctx, since, limit)
		if list.Reset {
			list.Events = []agl.Event{{ID: list.Last, Kind: agl.EventReset}}
		}
		return list.Events, err
	})
}

func (s *Store) readEvents(ctx context.Context, after string, limit int) (driver.EventList, error) {
	if !s.inFlight.enter() {
		return driver.EventList{}, errClosed()
	}
	defer s.inFlight.leave()
	if err := ctx.Err(); err != nil {
		return driver.EventList{}, err
	}
	return s.driver.Events(ctx, after, limit)
}
