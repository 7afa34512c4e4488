package server

import (
	"context"
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// events serves the store's changes as server-sent events.
type events struct {
	store     agl.Store
	drain     *drain
	heartbeat time.Duration
}

// stream sends events until the client leaves, the server drains, or the store ends
// its stream, whose error is the last event.
func (s events) stream(x *exchange) error {
	since := x.request.Header.Get(wire.LastEventID)
	if since == "" {
		since = x.request.URL.Query().Get("since")
	}
	h := x.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx must not hold events back
	x.WriteHeader(http.StatusOK)
	if err := x.sendNow([]byte(": agl\n\n")); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(x.context())
	messages := make(chan []byte)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.read(ctx, since, messages)
	}()
	defer func() {
		cancel()
		<-done
	}()
	heartbeat := time.NewTicker(s.heartbeat)
	defer heartbeat.Stop()
	for {
		message := []byte(":\n\n")
		select {
		case <-x.context().Done():
			x.status = statusClientGone
			return nil
		case <-s.drain.started:
			return nil
		case <-done:
			return nil
		case <-heartbeat.C:
		case message = <-messages:
		}
		if err := x.sendNow(message); err != nil {
			return err
		}
	}
}

// read reads events of the store until its stream or ctx ends.
func (s events) read(ctx context.Context, since string, messages chan<- []byte) {
	for event, err := range s.store.Events(ctx, agl.EventsParams{Since: since}) {
		if agl.IsContextError(err) {
			return
		}
		message := wire.AppendEvent(nil, event, err)
		select {
		case messages <- message:
		case <-ctx.Done():
			return
		}
	}
}
