package proxy

import (
	"sync"
	"time"
)

// verdict is what a try says of its backend.
type verdict int

const (
	neutral  verdict = iota // nothing: the agent left, or the proxy gave up
	answered                // it replies; whether the reply comes whole is not known yet
	worked
	failed
)

// breaker keeps calls from a backend that fails. It opens after so many
// failures in a row, lets a single trial through when its rest is over, closes
// when the trial works and rests twice as long when it does not. (Nygard,
// "Release It!", 2nd ed., 2018, ch. 5.) A reply that breaks off is a failure like
// one that never came; since streams last for minutes, a trial works as soon as
// its reply has begun, and only a reply that came whole ends a row of failures.
//
// It is our own since a trial may end without saying anything of the backend,
// when the agent leaves: then the next call is the trial. Breakers of libraries
// want a success or a failure for every permit that they give.
type breaker struct {
	mu       sync.Mutex
	failures int           // in a row
	rest     time.Duration // of the present opening; 0 is closed
	until    time.Time     // when the rest is over
	trial    bool          // a trial is under way
}

// wait is how long no call may pass; 0 lets one try [breaker.admit].
func (b *breaker) wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.rest == 0:
		return 0
	case b.trial:
		return max(b.until.Sub(now), time.Second) // nobody knows when it ends
	default:
		return max(b.until.Sub(now), 0)
	}
}

// admit lets a call pass, which ends with a report.
func (b *breaker) admit(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rest == 0 {
		return true
	}
	if b.trial || now.Before(b.until) {
		return false
	}
	b.trial = true
	return true
}

// report takes the verdict of an admitted call.
func (b *breaker) report(v verdict, now time.Time, cfg *Health) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch v {
	case answered:
		if b.trial {
			b.rest, b.trial = 0, false
		}
	case worked:
		b.failures, b.rest, b.trial = 0, 0, false
	case failed:
		b.failures++
		switch {
		case b.trial:
			b.rest = min(2*b.rest, cfg.MaxRest)
		case b.rest == 0 && b.failures >= cfg.Failures:
			b.rest = cfg.Rest
		default: // it is open already: a call that began before
			return
		}
		b.trial, b.until = false, now.Add(b.rest)
	case neutral:
		b.trial = false
	}
}
