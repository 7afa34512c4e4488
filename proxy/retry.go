package proxy

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/agl-go/agl"
)

// Retry says how a request is repeated that a backend did not answer, or
// answered with 408, 429 or 5xx. It is repeated only while the agent has not
// seen a byte of a reply, on another replica if there is one.
type Retry struct {
	// Attempts is how often a request is sent at most; 0 is 3, 1 repeats nothing.
	Attempts int
	// Delay bounds the pause before the first repeat; 0 is 100 ms. It doubles with
	// each repeat, and the pause is drawn evenly from zero up to it.
	Delay time.Duration
	// MaxDelay bounds every pause; 0 is 5 s. When the backend's Retry-After asks
	// for more, its answer goes to the agent instead.
	MaxDelay time.Duration
}

func (r Retry) withDefaults() Retry {
	orDefault(&r.Attempts, 3)
	orDefault(&r.Delay, 100*time.Millisecond)
	orDefault(&r.MaxDelay, 5*time.Second)
	return r
}

func (r Retry) check() error {
	for _, f := range [...]struct {
		name  string
		value int64
	}{{"Attempts", int64(r.Attempts)}, {"Delay", int64(r.Delay)}, {"MaxDelay", int64(r.MaxDelay)}} {
		if f.value < 0 {
			return agl.Errorf(agl.CodeInvalid, "Retry.%s: got %d, must not be negative", f.name, f.value)
		}
	}
	return nil
}

// pause draws the pause after the nth try, by "full jitter". (Brooker,
// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.)
func (r *Retry) pause(tries int) time.Duration {
	limit := r.Delay
	for range tries - 1 {
		if limit >= r.MaxDelay {
			break
		}
		limit *= 2
	}
	return rand.N(min(limit, r.MaxDelay) + 1)
}

// repeatable says that an answer may be another one the next time.
func repeatable(res *http.Response) bool {
	switch {
	case res.Header.Get("X-Should-Retry") == "false":
		return false
	case res.StatusCode == http.StatusRequestTimeout, res.StatusCode == http.StatusTooManyRequests:
		return true
	default:
		return res.StatusCode >= 500 && res.StatusCode != http.StatusNotImplemented
	}
}

// retryAfter reads how long a backend asks to be left alone; 0 is nothing.
// Besides the standard's header some send one in milliseconds.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return bounded(ms / 1e3)
	}
	value := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(value, 64); err == nil && s > 0 {
		return bounded(s)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// bounded turns seconds into a duration that cannot overflow.
func bounded(seconds float64) time.Duration {
	const most = 24 * time.Hour
	return time.Duration(min(seconds, most.Seconds()) * float64(time.Second))
}
