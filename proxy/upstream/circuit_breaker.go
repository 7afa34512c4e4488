package upstream

import (
	"cmp"
	"sync"
	"time"

	"github.com/agl-go/agl/internal/bounds"
)

// Health says when a backend counts as down: calls then go to other replicas, or
// are refused with 503 when there is none.
type Health struct {
	// Failures is the number of consecutive failed calls (no answer, 5xx, a reply that
	// breaks off, or silence for Config.IdleTimeout) after which a backend is down; 0
	// is 5.
	Failures int
	// Cooldown is how long a backend then gets no calls, before a single trial call; 0 is
	// 1 s. It doubles with each trial that fails, up to MaxCooldown (0 is 30 s).
	Cooldown, MaxCooldown time.Duration
	// ProbeInterval is how often a Model.HealthURL is requested; 0 is 5 s. After two
	// failed probes in a row a backend is down, until one succeeds.
	ProbeInterval time.Duration
	// ProbeTimeout bounds each probe; 0 is 2 s.
	ProbeTimeout time.Duration
}

func (h Health) withDefaults() Health {
	return Health{
		cmp.Or(h.Failures, 5), cmp.Or(h.Cooldown, time.Second), cmp.Or(h.MaxCooldown, 30*time.Second),
		cmp.Or(h.ProbeInterval, 5*time.Second), cmp.Or(h.ProbeTimeout, 2*time.Second),
	}
}

func (h *Health) validate() error {
	return bounds.NotNegative("Health.", bounds.Number("Failures", h.Failures), bounds.Number("Cooldown", h.Cooldown), bounds.Number("MaxCooldown", h.MaxCooldown),
		bounds.Number("ProbeInterval", h.ProbeInterval), bounds.Number("ProbeTimeout", h.ProbeTimeout))
}

// verdict says whether a try worked, for the circuit breaker of its backend.
type verdict int

const (
	neutral  verdict = iota // unknown: the agent left, or the proxy cancelled the call
	answered                // the reply has begun
	worked                  // the reply is complete
	failed
)

// circuitBreaker keeps calls from a failing backend. It opens after several
// consecutive failures and admits a single trial call after the cooldown. If the trial
// succeeds it closes, otherwise it stays open twice as long. (Nygard, "Release It!",
// 2nd ed., 2018, ch. 5.) A reply that breaks off counts as a failure. Because streams
// last for minutes, a trial succeeds as soon as its reply has begun, but only a complete
// reply resets the count of failures.
//
// The usual libraries do not fit: they require success or failure for every admitted
// call, while a trial here may end without a verdict, when the agent leaves. The next
// call is then the trial.
type circuitBreaker struct {
	mu       sync.Mutex
	failures int           // consecutive
	cooldown time.Duration // how long it stays open; 0 while it is closed
	until    time.Time     // when the cooldown ends
	trial    bool          // a trial is under way
}

// wait returns how long no call is admitted; at 0 a call may try [circuitBreaker.admit].
func (b *circuitBreaker) wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.cooldown == 0:
		return 0
	case b.trial:
		return max(b.until.Sub(now), time.Second) // a guess: the trial may take longer
	default:
		return max(b.until.Sub(now), 0)
	}
}

// admit reports whether a call may run. An admitted call must end with report.
func (b *circuitBreaker) admit(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cooldown == 0 {
		return true
	}
	if b.trial || now.Before(b.until) {
		return false
	}
	b.trial = true
	return true
}

// report records the verdict of an admitted call.
func (b *circuitBreaker) report(v verdict, now time.Time, cfg *Health) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch v {
	case answered:
		if b.trial {
			b.cooldown, b.trial = 0, false
		}
	case worked:
		b.failures, b.cooldown, b.trial = 0, 0, false
	case failed:
		b.failures++
		switch {
		case b.trial:
			b.cooldown = min(2*b.cooldown, cfg.MaxCooldown)
		case b.cooldown == 0 && b.failures >= cfg.Failures:
			b.cooldown = cfg.Cooldown
		default: // the call began before the breaker opened
			return
		}
		b.trial, b.until = false, now.Add(b.cooldown)
	case neutral:
		b.trial = false
	}
}
