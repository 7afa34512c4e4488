package store

import (
	"sync"
	"time"
)

// Clock tells the time and wakes. It must not run backwards.
type Clock interface {
	Now() time.Time
	// NewTimer returns a channel that receives once, when d has passed; stop
	// releases the timer and may be called at any time.
	NewTimer(d time.Duration) (c <-chan time.Time, stop func())
}

// systemClock is the Clock of Config's zero value.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) NewTimer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// ManualClock is a Clock that moves only when it is told to, for tests of a
// store that cannot run on fake time.
type ManualClock struct {
	mu     sync.Mutex
	now    time.Time
	timers map[chan time.Time]time.Time
}

// NewManualClock returns a clock that stands at now.
func NewManualClock(now time.Time) *ManualClock {
	return &ManualClock{now: now, timers: map[chan time.Time]time.Time{}}
}

// Now returns where the clock stands.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// NewTimer implements Clock.
func (c *ManualClock) NewTimer(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	if d <= 0 {
		ch <- c.now
		return ch, func() {}
	}
	c.timers[ch] = c.now.Add(d)
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.timers, ch)
	}
}

// Advance moves the clock on and fires what is due.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for ch, at := range c.timers {
		if !at.After(c.now) {
			ch <- c.now
			delete(c.timers, ch)
		}
	}
}
