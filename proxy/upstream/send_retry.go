package upstream

import (
	"cmp"
	"net/http"
	"time"

	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/bounds"
)

// Retry says how a request is repeated when a backend does not answer, or answers with
// 408, 429 or 5xx. A request is repeated only while the agent has not received a byte of
// a reply, and on another replica if there is one.
type Retry struct {
	// Attempts is how often a request is sent at most; 0 is 3, 1 repeats nothing.
	Attempts int
	// Delay bounds the wait before the first repeat; 0 is 100 ms. It doubles with
	// each repeat, and the wait is drawn evenly from zero up to it.
	Delay time.Duration
	// MaxDelay bounds every wait; 0 is 5 s. When the backend's Retry-After asks for
	// more, the agent gets the backend's answer instead.
	MaxDelay time.Duration
}

func (r Retry) withDefaults() Retry {
	return Retry{cmp.Or(r.Attempts, 3), cmp.Or(r.Delay, 100*time.Millisecond), cmp.Or(r.MaxDelay, 5*time.Second)}
}

func (r *Retry) validate() error {
	return bounds.NotNegative("Retry.", bounds.Number("Attempts", r.Attempts), bounds.Number("Delay", r.Delay), bounds.Number("MaxDelay", r.MaxDelay))
}

// delay draws the wait after so many tries.
func (r *Retry) delay(tries int) time.Duration {
	return backoff.Exponential{First: r.Delay, Max: r.MaxDelay, Jitter: 1}.Delay(tries - 1)
}

// repeatable reports whether a backend may answer differently the next time.
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
