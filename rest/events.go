package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/agl-go/agl"
)

// eventHeartbeat is how often a server that is not told otherwise shows on its
// event streams that it is alive.
const eventHeartbeat = 15 * time.Second

// events streams the store's changes as server-sent events: of each its id, its
// kind as the event's name, and its document as the data. An error of the store
// is the last event, named "error".
func (s *Server) events(c *call) error {
	since := c.request.Header.Get("Last-Event-ID")
	if since == "" {
		since = c.request.URL.Query().Get("since")
	}
	control := http.NewResponseController(c.ResponseWriter)
	h := c.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // a proxy on the way must not hold events back
	c.WriteHeader(http.StatusOK)
	write := func(out []byte) error {
		if _, err := c.Write(out); err != nil {
			return &writeError{err}
		}
		if err := control.Flush(); err != nil {
			return &writeError{err}
		}
		return nil
	}
	if err := write([]byte(": agl\n\n")); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(c.request.Context())
	items := make(chan eventItem)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.pump(ctx, since, items)
	}()
	defer func() {
		cancel()
		<-done
	}()
	heartbeat := time.NewTicker(s.config.EventHeartbeat)
	defer heartbeat.Stop()
	for {
		select {
		case <-c.request.Context().Done():
			c.status = statusClientGone
			return nil
		case <-s.draining:
			return nil
		case <-done:
			return nil
		case <-heartbeat.C:
			if err := write([]byte(":\n\n")); err != nil {
				return err
			}
		case item := <-items:
			if err := write(item.append(c.out)); err != nil {
				return err
			}
		}
	}
}

type eventItem struct {
	event agl.Event
	err   error
}

func (i *eventItem) append(dst []byte) []byte {
	if i.err != nil {
		dst = append(dst, "event: error\ndata: "...)
		return append(appendProblem(dst, i.err), "\n\n"...)
	}
	dst = append(dst, "id: "...)
	dst = append(dst, i.event.ID...)
	dst = append(dst, "\nevent: "...)
	dst = append(dst, i.event.Kind...)
	dst = append(dst, "\ndata: "...)
	return append(i.event.AppendJSON(dst), "\n\n"...)
}

// pump moves events from the store to items until ctx ends or there are none
// left.
func (s *Server) pump(ctx context.Context, since string, items chan<- eventItem) {
	for event, err := range s.store.Events(ctx, agl.EventsParams{Since: since}) {
		if agl.IsContextError(err) {
			return
		}
		select {
		case items <- eventItem{event, err}:
		case <-ctx.Done():
			return
		}
	}
}
