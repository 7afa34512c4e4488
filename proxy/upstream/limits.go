package upstream

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/proxy/openai"
)

// Limits bound the calls to a backend. A call over a limit waits in a queue, for
// Config.QueueTimeout at most, and is then refused. The zero value has no limits.
type Limits struct {
	// InFlight bounds the requests that run at the same time.
	InFlight int `json:"in_flight,omitzero"`
	// RequestsPerMinute is the rate of a token bucket that holds one minute's requests
	// and starts full.
	RequestsPerMinute int `json:"requests_per_minute,omitzero"`
	// TokensPerMinute is the same for the tokens of prompts and replies. They are
	// charged when a call ends, because they are unknown before; while the bucket is
	// overdrawn, further calls wait.
	TokensPerMinute int `json:"tokens_per_minute,omitzero"`
}

// limiter applies [Limits] to calls in the order of their arrival.
type limiter struct {
	mu       sync.Mutex
	limits   Limits
	inFlight int
	requests *rate.Limiter // nil without a limit
	tokens   *rate.Limiter // nil without a limit
	waiting  list.List     // of chan struct{}, capacity 1, the longest wait in front
}

// configure changes the limits. What has been used stays used.
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

// never is the wait for an event that no timer can predict.
const never = time.Duration(math.MaxInt64)

// The limits, by what they count.
const (
	limitInFlight = "requests in flight"
	limitRequests = "requests per minute"
	limitTokens   = "tokens per minute"
)

// exceeded returns the limit that keeps a call from starting now and for how long.
// The limit is empty when the call may start.
func (l *limiter) exceeded(now time.Time) (limit string, wait time.Duration) {
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
		// Without the tolerance, rounding could make the wait zero.
		if missing := 1 - b.TokensAt(now); missing > 1e-9 {
			return b.name, time.Duration(missing/float64(b.Limit())*float64(time.Second)) + 1
		}
	}
	return "", 0
}

// take starts a call if the limits allow it.
func (l *limiter) take(now time.Time) (limit string, wait time.Duration) {
	limit, wait = l.exceeded(now)
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
	limit, _ := l.exceeded(now)
	return limit == "" && l.waiting.Len() == 0
}

// acquire waits until the call may start. Its error is an *openai.Error after the
// timeout, or the cause of ctx.
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
		if err := l.await(ctx, turn, min(wait, left)); err != nil {
			return err
		}
	}
}

// await releases the lock until the call may try again, for at most d.
func (l *limiter) await(ctx context.Context, turn <-chan struct{}, d time.Duration) error {
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-turn:
	case <-time.After(d):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// refuse returns the error of a call that has waited too long.
func (l *limiter) refuse(limit string, wait, timeout time.Duration) *openai.Error {
	if limit == "" { // it never came to the front
		limit, wait = l.exceeded(time.Now())
	}
	switch {
	case limit != "":
	case l.requests != nil: // a call in front takes the next request
		limit, wait = limitRequests, time.Duration(float64(time.Second)/float64(l.requests.Limit()))
	default:
		limit = limitInFlight
	}
	status, code := http.StatusTooManyRequests, "rate_limited"
	if limit == limitInFlight {
		status, code, wait = http.StatusServiceUnavailable, "backend_full", time.Second
	}
	return refusal(status, code, wait, fmt.Sprintf("the backend is at its limit of %s, and a call may wait no longer than %v", limit, timeout))
}

// release ends a call.
func (l *limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	l.wake()
}

// longestDebt is for how many minutes a call may overdraw the bucket of tokens: a backend may claim any number.
const longestDebt = 60

// charge charges the tokens of a call, which may overdraw the bucket.
func (l *limiter) charge(tokens int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tokens == nil {
		return
	}
	burst := int64(l.tokens.Burst())
	if tokens/longestDebt > burst {
		tokens = longestDebt * burst
	}
	for now := time.Now(); tokens > 0; {
		n := min(tokens, burst)
		l.tokens.ReserveN(now, int(n))
		tokens -= n
	}
}

// wake lets the call in front check the limits again.
func (l *limiter) wake() {
	front := l.waiting.Front()
	if front == nil {
		return
	}
	if turn, ok := front.Value.(chan struct{}); ok {
		background.Wake(turn)
	}
}
