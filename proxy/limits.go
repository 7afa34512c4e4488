package proxy

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
)

// Limits bound what a backend gets to do. A call over them waits its turn, up
// to Config.QueueTimeout, and is then refused. The zero value bounds nothing.
type Limits struct {
	// InFlight is how many requests run at a time.
	InFlight int `json:"in_flight,omitzero"`
	// RequestsPerMinute fills a bucket that holds a minute's worth, full at first.
	RequestsPerMinute int `json:"requests_per_minute,omitzero"`
	// TokensPerMinute does so with tokens, of prompts and replies. A call is
	// charged when it ends, since nobody knows before; while the account is
	// overdrawn the next calls wait.
	TokensPerMinute int `json:"tokens_per_minute,omitzero"`
}

func (l Limits) check(field string) error {
	for _, f := range [...]struct {
		name  string
		value int
	}{{"in_flight", l.InFlight}, {"requests_per_minute", l.RequestsPerMinute}, {"tokens_per_minute", l.TokensPerMinute}} {
		if f.value < 0 {
			return agl.Errorf(agl.CodeInvalid, "%s.%s: got %d, must not be negative", field, f.name, f.value)
		}
	}
	return nil
}

// limiter applies [Limits], first come, first served.
type limiter struct {
	mu       sync.Mutex
	limits   Limits
	inFlight int
	requests *rate.Limiter // nil without a limit
	tokens   *rate.Limiter // nil without a limit
	waiting  list.List     // of chan struct{}, capacity 1, the longest wait in front
}

// configure changes the limits. What has been used up stays used up.
func (l *limiter) configure(limits Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits = limits
	l.requests = bucket(l.requests, limits.RequestsPerMinute)
	l.tokens = bucket(l.tokens, limits.TokensPerMinute)
	l.wake()
}

func bucket(l *rate.Limiter, perMinute int) *rate.Limiter {
	limit := rate.Limit(float64(perMinute) / time.Minute.Seconds())
	switch {
	case perMinute == 0:
		return nil
	case l == nil:
		return rate.NewLimiter(limit, perMinute)
	case l.Burst() != perMinute:
		l.SetLimit(limit)
		l.SetBurst(perMinute)
	}
	return l
}

// never is the wait for something that no clock brings about.
const never = time.Duration(math.MaxInt64)

// The limits by what they count.
const (
	limitInFlight = "requests in flight"
	limitRequests = "requests per minute"
	limitTokens   = "tokens per minute"
)

// lacks returns the limit that keeps a call from starting now, and how long it
// will; an empty one does not.
func (l *limiter) lacks(now time.Time) (limit string, wait time.Duration) {
	if l.limits.InFlight > 0 && l.inFlight >= l.limits.InFlight {
		return limitInFlight, never
	}
	for _, b := range [...]struct {
		name string
		*rate.Limiter
	}{{limitTokens, l.tokens}, {limitRequests, l.requests}} {
		if b.Limiter == nil {
			continue
		}
		// A float that is all but 1 would have the wait rounded to nothing.
		if missing := 1 - b.TokensAt(now); missing > 1e-9 {
			return b.name, time.Duration(missing/float64(b.Limit())*float64(time.Second)) + 1
		}
	}
	return "", 0
}

// take starts a call if the limits let it.
func (l *limiter) take(now time.Time) (limit string, wait time.Duration) {
	limit, wait = l.lacks(now)
	if limit == "" {
		l.inFlight++
		if l.requests != nil {
			l.requests.ReserveN(now, 1)
		}
	}
	return limit, wait
}

// free reports whether a call would start at once.
func (l *limiter) free(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit, _ := l.lacks(now)
	return limit == "" && l.waiting.Len() == 0
}

// acquire starts a call when it is its turn. Its error is a *failure when that
// does not come within the timeout, or the context's.
func (l *limiter) acquire(ctx context.Context, timeout time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting.Len() == 0 {
		if limit, _ := l.take(time.Now()); limit == "" {
			return nil
		}
	}
	turn := make(chan struct{}, 1)
	place := l.waiting.PushBack(turn)
	defer func() {
		l.waiting.Remove(place)
		l.wake()
	}()
	deadline := time.Now().Add(timeout)
	for {
		limit, wait := "", never
		now := time.Now()
		if l.waiting.Front() == place {
			if limit, wait = l.take(now); limit == "" {
				return nil
			}
		}
		left := deadline.Sub(now)
		if left <= 0 || limit != "" && wait != never && wait > left {
			return l.refuse(limit, wait, timeout)
		}
		if err := l.pause(ctx, turn, min(wait, left)); err != nil {
			return err
		}
	}
}

// pause gives the lock up until the turn may have come.
func (l *limiter) pause(ctx context.Context, turn <-chan struct{}, d time.Duration) error {
	l.mu.Unlock()
	defer l.mu.Lock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-turn:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// refuse is what a call over a limit gets.
func (l *limiter) refuse(limit string, wait, timeout time.Duration) *failure {
	status, code := http.StatusTooManyRequests, "rate_limited"
	if limit == "" { // others were in front to the end
		limit, wait = l.lacks(time.Now())
	}
	switch {
	case limit != "":
	case l.requests != nil: // the turn comes just now, for one of those in front
		limit, wait = limitRequests, time.Duration(float64(time.Second)/float64(l.requests.Limit()))
	default:
		limit = limitInFlight
	}
	if limit == limitInFlight {
		status, code, wait = http.StatusServiceUnavailable, "backend_full", time.Second
	}
	f := fail(status, openai.OverloadedError, code, fmt.Sprintf("the backend is at its limit of %s, and a call may wait no longer than %v", limit, timeout))
	if status == http.StatusTooManyRequests {
		f.body.Type = openai.RateLimitError
	}
	f.retryAfter = seconds(wait)
	return f
}

// seconds rounds a wait up, to what a Retry-After can say.
func seconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

// release ends a call.
func (l *limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	l.wake()
}

// charge takes the tokens of a call, which may overdraw the account.
func (l *limiter) charge(tokens int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tokens == nil {
		return
	}
	for now := time.Now(); tokens > 0; {
		n := min(tokens, int64(l.tokens.Burst()))
		l.tokens.ReserveN(now, int(n))
		tokens -= n
	}
}

// wake has the front of the line look again.
func (l *limiter) wake() {
	front := l.waiting.Front()
	if front == nil {
		return
	}
	if turn, ok := front.Value.(chan struct{}); ok {
		select {
		case turn <- struct{}{}:
		default:
		}
	}
}
