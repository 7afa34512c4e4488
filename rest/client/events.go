package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/rest/internal/wire"
)

// maxEventLine bounds a line of an event stream, in bytes.
const maxEventLine = 1 << 20

var errStreamIdle = errors.New("the event stream was idle for too long")

// Events implements agl.Store. It reopens a broken or silent stream after the last event that arrived, and ends with
// an error once that has failed for the retry budget.
func (c *Client) Events(ctx context.Context, p agl.EventsParams) iter.Seq2[agl.Event, error] {
	return func(yield func(agl.Event, error) bool) {
		since, connected, lost := p.Since, false, false
		var failing time.Time // since when; zero while streams work
		for try := 0; ; try++ {
			var err error
			alive := false
			for event, failure := range c.stream(ctx, since, p.Every) {
				if err = failure; err != nil {
					break
				}
				alive, connected = true, true
				if lost && !yield(agl.Event{Kind: agl.EventReset}, nil) {
					return
				}
				lost = false
				if event == nil {
					continue
				}
				try, failing, since = 0, time.Time{}, event.ID
				if !yield(*event, nil) {
					return
				}
			}
			lost = connected && since == "" // events may have been missed
			again, repeats := errors.AsType[*repeatable](err)
			if alive && repeats && !again.event { // a stream opens even if the server's store is closed
				try, failing = 0, time.Time{}
			}
			delay := c.delay(try)
			if failing.IsZero() {
				failing = time.Now()
			}
			switch {
			case ctx.Err() != nil:
				yield(agl.Event{}, ended(ctx, "Events"))
				return
			case !repeats:
				yield(agl.Event{}, err)
				return
			case time.Since(failing)+delay > c.config.RetryTimeout:
				yield(agl.Event{}, again.err)
				return
			}
			c.config.Logger.Warn("reopening the event stream", "since", since, "delay", delay, "error", again.err)
			_ = backoff.Sleep(ctx, delay) // the next attempt notices that ctx has ended
		}
	}
}

// stream reads one event stream. It yields nil for a line that completes no event, such as a
// heartbeat, and always ends with an error.
func (c *Client) stream(ctx context.Context, since string, every time.Duration) iter.Seq2[*agl.Event, error] {
	const name = "Events"
	return func(yield func(*agl.Event, error) bool) {
		if c.closed.Load() {
			yield(nil, agl.Errorf(agl.CodeUnavailable, "%s: the client is closed", name))
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		idle := time.AfterFunc(c.config.EventIdleTimeout, func() { cancel(errStreamIdle) })
		defer idle.Stop()
		fail := func(err error) {
			if errors.Is(context.Cause(ctx), errStreamIdle) {
				err = c.unreachable(name, errStreamIdle)
			}
			yield(nil, err)
		}
		path := wire.Events
		if every > 0 {
			path += "?every=" + strconv.FormatFloat(every.Seconds(), 'g', -1, 64)
		}
		res, _, err := c.open(ctx, operation{name: name, method: http.MethodGet, path: path, since: since})
		if err != nil {
			fail(err)
			return
		}
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, maxEventLine)
		var parser wire.EventParser
		for lines.Scan() {
			idle.Stop() // time that the reader spends on an event does not count
			event, err := parser.Line(lines.Bytes())
			// A stream outlives the token or certificate with which it was opened; if the files still have the old ones, reopening it fails.
			renewable := agl.ErrorCode(err) == agl.CodeUnauthorized && (c.tokenFile != nil || hasCertificate(c.config.TLS))
			if renewable || errors.Is(err, agl.ErrUnavailable) {
				err = &repeatable{err: err, event: true}
			}
			if !yield(event, err) || err != nil {
				return
			}
			idle.Reset(c.config.EventIdleTimeout)
		}
		switch err := lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(nil, agl.Errorf(agl.CodeInternal, "%s: a line is longer than %d bytes", name, maxEventLine))
		case err == nil:
			fail(c.unreachable(name, io.ErrUnexpectedEOF))
		default:
			fail(c.unreachable(name, err))
		}
	}
}
