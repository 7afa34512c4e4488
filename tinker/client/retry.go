package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/httpserver"
)

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 30 * time.Second
	// maxFaults bounds the answers 500 to one request: some servers answer 500 to what they will never accept.
	maxFaults = 5
	// outageGap is the time without a failure after which an outage is over, whether or not a request has succeeded.
	outageGap = 2 * maxBackoff
	// An outage is a warning from tellAfter on, every tellEvery.
	tellAfter = time.Second
	tellEvery = 30 * time.Second
)

// outage is a row of failures of a path, of whichever calls: each of them may end, with its agent for example, before Config.RetryFor
// has passed.
type outage struct{ since, last, told time.Time }

// failed records a failure of a path. It returns when the outage began, and whether it is time to tell.
func (t *transport) failed(path string) (since time.Time, tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	o := t.outages[path]
	if now.Sub(o.last) > outageGap {
		o = outage{since: now}
	}
	o.last = now
	if tell = now.Sub(o.since) >= tellAfter && now.Sub(o.told) >= tellEvery; tell {
		o.told = now
	}
	t.outages[path] = o
	return o.since, tell
}

// answered ends the outage of a path.
func (t *transport) answered(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.outages, path)
}

// retries paces the retries of one request.
type retries struct {
	since  time.Time // of the first failure in a row; zero is none
	tries  int
	faults int
}

// wait sleeps before the next try. It returns the cause if there is no next try.
func (f *retries) wait(ctx context.Context, t *transport, r request, rep reply, cause error) error {
	since, tell := t.failed(r.path)
	if f.since.IsZero() {
		f.since = time.Now()
	}
	if since.After(f.since) {
		since = f.since
	}
	if rep.status == http.StatusInternalServerError {
		f.faults++
	}
	limit := t.cfg.RetryFor
	if r.retryFor > 0 {
		limit = min(limit, r.retryFor)
	}
	if limit < 0 || time.Since(since) >= limit || f.faults >= maxFaults {
		return cause
	}
	pause := backoff.Exponential{First: minBackoff, Max: maxBackoff, Jitter: 0.5}.Delay(f.tries)
	pause = max(pause, min(rep.retryAfter, maxBackoff))
	f.tries++
	level := slog.LevelDebug
	if tell {
		level = slog.LevelWarn
	}
	t.cfg.Logger.LogAttrs(ctx, level, "client: a request to the engine failed and is retried",
		slog.String("path", r.path), slog.Duration("retry_for", limit), slog.Duration("backoff", pause), slog.Any("error", cause))
	return backoff.Sleep(ctx, pause)
}

// exchange makes a request until there is a 2xx reply, as long as retries are safe and there is time. inDoubt is true
// when the request may have run although there is an error.
func (t *transport) exchange(ctx context.Context, r request) (rep reply, inDoubt bool, err error) {
	var f retries
	for {
		rep, err := t.send(ctx, r)
		if err == nil && rep.status/100 == 2 {
			t.answered(r.path)
			return rep, false, nil
		}
		safe := false // the server cannot have run the request
		switch {
		case err != nil:
			safe = isDial(err)
			inDoubt = inDoubt || !safe
			if ctx.Err() != nil {
				return reply{}, inDoubt, fmt.Errorf("client: %s: %w", r.path, ctx.Err())
			}
			if _, ok := errors.AsType[*agl.Error](err); ok {
				return reply{}, inDoubt, err
			}
			// A certificate that is refused at the start is a mistake; later it is an outage, which others can repair.
			switch untrusted := httpserver.Untrusted(err); {
			case untrusted && !t.begun.Load():
				return reply{}, inDoubt, invalid("%s: no TLS connection to the engine can be made: %w", r.path, err)
			case !untrusted:
				t.begun.Store(true)
			}
			err = agl.Errorf(agl.CodeUnavailable, "client: %s: %w", r.path, err)
		case rep.status == http.StatusTooManyRequests || rep.status == http.StatusServiceUnavailable:
			// RFC 6585 §4 and RFC 9110 §15.6.4: the server did not take the request.
			safe = true
			err = rep.problem(r.path)
		case rep.status >= 500 && rep.status != http.StatusNotImplemented || rep.status == http.StatusRequestTimeout || rep.status == http.StatusTooEarly:
			inDoubt = true
			err = rep.problem(r.path)
		default:
			t.answered(r.path)
			// The server refused the request. If the answer to an earlier try was lost, that try may be the reason.
			inDoubt = inDoubt && (rep.status == http.StatusConflict || rep.status == http.StatusNotFound)
			return rep, inDoubt, rep.problem(r.path)
		}
		if !safe && !r.repeatable {
			return rep, inDoubt, err
		}
		if err := f.wait(ctx, t, r, rep, err); err != nil {
			return rep, inDoubt, err
		}
	}
}

// isDial reports whether no connection was made, so that no server has seen the request.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// ask makes a request that can be repeated and decodes its answer into out.
func (t *transport) ask(ctx context.Context, r request, out any) error {
	r.repeatable = true
	rep, _, err := t.exchange(ctx, r)
	if err != nil {
		return err
	}
	return rep.read(r.path, out)
}
