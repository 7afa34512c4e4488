package rest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
)

// maxEventLine bounds a line of an event stream.
const maxEventLine = 1 << 20

// missedHeartbeats is after how many a stream counts as broken.
const missedHeartbeats = 3

var errStreamSilent = errors.New("the event stream has been silent for too long")

// Events implements agl.Store. A stream that breaks or falls silent is opened
// again after the last event that arrived; it ends with an error once that has
// failed for the retry budget.
func (c *Client) Events(ctx context.Context, p agl.EventsParams) iter.Seq2[agl.Event, error] {
	return func(yield func(agl.Event, error) bool) {
		since, connected, lost := p.Since, false, false
		var failing time.Time // since when; zero while the stream lives
		for try := 0; ; try++ {
			wanted := true
			err := c.stream(ctx, since, func() bool {
				try, failing, connected = 0, time.Time{}, true
				if lost {
					lost = false
					wanted = yield(agl.Event{Kind: agl.EventReset}, nil)
				}
				return wanted
			}, func(e agl.Event) bool {
				since = e.ID
				wanted = yield(e, nil)
				return wanted
			})
			// Without an event to resume after, nobody knows what happened meanwhile.
			lost = connected && since == ""
			var again *repeatable
			switch {
			case !wanted:
				return
			case ctx.Err() != nil:
				yield(agl.Event{}, ended(ctx, "Events"))
				return
			case !errors.As(err, &again):
				yield(agl.Event{}, err)
				return
			}
			pause := c.backoff().Delay(try)
			if failing.IsZero() {
				failing = time.Now()
			}
			if time.Since(failing)+pause > c.config.RetryBudget {
				yield(agl.Event{}, again.err)
				return
			}
			c.config.Logger.Warn("event stream will be opened again", "since", since, "pause", pause, "error", again.err)
			if backoff.Sleep(ctx, pause) != nil {
				yield(agl.Event{}, ended(ctx, "Events"))
				return
			}
		}
	}
}

// stream reads one event stream until it ends, which is always an error, or
// until alive, which is called for every sign of life, or yield wants no more.
func (c *Client) stream(ctx context.Context, since string, alive func() bool, yield func(agl.Event) bool) error {
	const op = "Events"
	if c.closed.Load() {
		return agl.Errorf(agl.CodeUnavailable, "%s: the client is closed", op)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The time that the reader takes over an event is no silence of the server.
	silence := time.AfterFunc(c.config.EventSilence, func() { cancel(errStreamSilent) })
	defer silence.Stop()
	broken := func(err error) error {
		if cause := context.Cause(ctx); errors.Is(cause, errStreamSilent) {
			err = cause
		}
		return unreachable(op, err)
	}
	req, err := c.request(ctx, exchange{op: op, method: http.MethodGet, path: "/events"})
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if since != "" {
		req.Header.Set("Last-Event-ID", since)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return broken(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
		if err != nil {
			return broken(err)
		}
		err = wireError(op, res.StatusCode, body)
		if retryable(res.StatusCode) {
			return &repeatable{err: err}
		}
		return err
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEventLine)
	var parser eventParser
	for lines.Scan() {
		silence.Stop()
		if !alive() {
			return nil
		}
		event, complete, err := parser.line(lines.Bytes())
		if err != nil {
			return err
		}
		if complete && !yield(event) {
			return nil
		}
		silence.Reset(c.config.EventSilence)
	}
	err = lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return agl.Errorf(agl.CodeInternal, "%s: a line is longer than %d bytes", op, maxEventLine)
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return broken(err)
}

// eventParser puts the lines of an event stream together.
type eventParser struct {
	kind string
	data []byte
}

// line takes the next line, without its end. An empty one completes an event.
// An event named "error" is returned as the error that it carries.
func (p *eventParser) line(line []byte) (event agl.Event, complete bool, err error) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) > 0 {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			p.kind = string(value)
		case "data":
			if p.data != nil {
				p.data = append(p.data, '\n')
			}
			p.data = append(p.data, value...)
		}
		return agl.Event{}, false, nil
	}
	kind, data := p.kind, p.data
	*p = eventParser{}
	switch {
	case data == nil:
		return agl.Event{}, false, nil
	case kind == "error":
		err := wireError("Events", http.StatusInternalServerError, data)
		if agl.ErrorCode(err) == agl.CodeUnavailable {
			err = &repeatable{err: err}
		}
		return agl.Event{}, false, err
	}
	if err := rawjson.Unmarshal(data, &event); err != nil {
		return agl.Event{}, false, agl.Errorf(agl.CodeInternal, "Events: an event cannot be read: %w", err)
	}
	return event, true, nil
}
