// Package backoff paces retries: a sleep that a context ends, the delays between
// tries, and the Retry-After header by which a server asks for a delay.
//
// The package knows time. It must not know what is tried, or which failures are worth a retry.
package backoff

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Sleep returns nil after d, or the cause of ctx as soon as ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Exponential is the schedule of the delays between tries. The delay after the
// n-th failure, counted from 0, is drawn evenly from
//
//	bound·(1-Jitter) … bound,  where bound = min(First·2ⁿ, Max)
//
// With Jitter 0 it is the bound itself, with 0.5 between a half of it and the whole ("equal jitter"), with 1 between nothing
// and the whole ("full jitter"), so that clients of a server that comes back do not all arrive at once. (Brooker,
// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.)
type Exponential struct {
	First  time.Duration // bound of the first delay
	Max    time.Duration // bound of every delay
	Jitter float64       // between 0 and 1
}

// Delay returns the delay after the n-th failure, counted from 0.
func (e Exponential) Delay(n int) time.Duration {
	bound := min(e.First, e.Max)
	for ; n > 0 && bound > 0 && bound < e.Max; n-- {
		if bound > e.Max/2 {
			bound = e.Max
			break
		}
		bound *= 2
	}
	return bound - time.Duration(rand.Float64()*e.Jitter*float64(bound))
}

// Wait sleeps for the delay after the n-th failure.
func (e Exponential) Wait(ctx context.Context, n int) error { return Sleep(ctx, e.Delay(n)) }

// maxRetryAfter bounds what RetryAfter returns, so that it fits a Duration.
const maxRetryAfter = 24 * time.Hour

// RetryAfter returns how long a reply asks its client to wait before the next request, at most 24 hours, or 0 if it does not
// ask. It reads the two forms of Retry-After, seconds and a date (RFC 9110, §10.2.3), and Retry-After-Ms, which some servers
// of models send and which is more exact.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return bounded(ms * float64(time.Millisecond))
	}
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 {
		return bounded(seconds * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

func bounded(nanoseconds float64) time.Duration {
	return time.Duration(min(nanoseconds, float64(maxRetryAfter)))
}

// SetRetryAfter asks the client of a reply to wait: d in whole seconds, rounded up, at least one.
func SetRetryAfter(h http.Header, d time.Duration) {
	seconds := max(1, int64(math.Ceil(d.Seconds())))
	h["Retry-After"] = []string{strconv.FormatInt(seconds, 10)}
}
