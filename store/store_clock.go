package store

import "time"

// Clock tells the time, which must not run backwards, and makes timers.
type Clock interface {
	Now() time.Time
	// NewTimer returns a channel that receives once, when d has passed; stop
	// releases the timer and may be called at any time.
	NewTimer(d time.Duration) (c <-chan time.Time, stop func())
}

// steadyClock is the Clock of Config's zero value: the system's time when the store was
// opened, plus the time that has passed since. Setting the system's clock therefore
// neither ends attempts nor keeps them alive.
type steadyClock struct {
	start  time.Time     // with a monotonic reading
	offset time.Duration // ahead of the system's time at the start
}

func newSteadyClock() *steadyClock { return &steadyClock{start: time.Now()} }

func (c *steadyClock) Now() time.Time { return c.start.Add(c.offset + time.Since(c.start)) }

// notBefore sets the clock to a time if that is ahead of it. It is called before the
// clock is shared.
func (c *steadyClock) notBefore(t time.Time) { c.offset += max(0, t.Sub(c.Now())) }

func (*steadyClock) NewTimer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
