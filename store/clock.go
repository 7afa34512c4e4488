package store

import "time"

// Clock tells the time, which must not run backwards, and makes timers.
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
