package server

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/internal/wire"
)

// events serves the store's changes as server-sent events.
type events struct {
	store     agl.Store
	heartbeat time.Duration
}

const (
	maxEvery       = 60  // seconds
	bufferedEvents = 256 // of one stream
)

// stream sends events until the client disconnects, the server drains, or the store ends its stream; the last event
// then has the store's error.
func (s events) stream(x *exchange) error {
	p := agl.EventsParams{Since: x.request.Header.Get(wire.LastEventID)}
	query := x.request.URL.Query()
	if p.Since == "" {
		p.Since = query.Get("since")
	}
	if every := query.Get("every"); every != "" {
		seconds, err := strconv.ParseFloat(every, 64)
		if err != nil || !(seconds >= 0 && seconds <= maxEvery) {
			return agl.Errorf(agl.CodeInvalid, "every: got %.40q, must be a number of seconds between 0 and %d", every, maxEvery)
		}
		p.Every = time.Duration(seconds * float64(time.Second))
	}
	leave, err := x.stay()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(x.context())
	defer cancel()
	changes := s.store.Events(ctx, p) // begins before the client receives the header
	h := x.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx must not hold events back
	x.WriteHeader(http.StatusOK)
	if err := x.sendNow([]byte(": agl\n\n")); err != nil {
		return err
	}

	messages := make(chan []byte, bufferedEvents)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(messages)
		x.encodeEvents(ctx, changes, messages)
	})
	defer func() {
		cancel()
		reading.Wait()
	}()
	heartbeat := time.Tick(s.heartbeat)
	check := time.Tick(access.Recheck)
	for {
		message, open := []byte(":\n\n"), true
		select {
		case <-x.context().Done():
			x.status = statusClientGone
			return nil
		case <-x.drain.started:
			return nil
		case <-check:
			if err := x.auth.still(x); agl.ErrorCode(err) == agl.CodeUnauthorized {
				return x.sendNow(x.lastEvent(err))
			}
			continue
		case <-heartbeat:
		case message, open = <-messages:
			for range len(messages) { // send what is there in one packet
				message = append(message, <-messages...)
			}
		}
		if !open {
			return nil
		}
		if err := x.sendNow(message); err != nil {
			return err
		}
	}
}

// encodeEvents sends events as messages until their stream or ctx ends.
func (x *exchange) encodeEvents(ctx context.Context, changes iter.Seq2[agl.Event, error], messages chan<- []byte) {
	for event, err := range changes {
		if agl.IsContextError(err) {
			return
		}
		var message []byte
		if err != nil {
			message = x.lastEvent(err)
		} else {
			message = wire.AppendEvent(nil, event)
		}
		select {
		case messages <- message:
		case <-ctx.Done():
			return
		}
	}
}
