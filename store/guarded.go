package store

import (
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/agl-go/agl"
)

// guarded keeps a panic of an Observer from looking like a failure of what it
// observes.
type guarded struct {
	observer Observer
	log      *slog.Logger
}

func (g guarded) recovered() {
	if v := recover(); v != nil {
		g.log.Error("an observer panicked", "panic", v, "stack", string(debug.Stack()))
	}
}

// ObserveStore implements Observer.
func (g guarded) ObserveStore(method string, err error, d time.Duration) {
	defer g.recovered()
	g.observer.ObserveStore(method, err, d)
}

// ObserveDriver implements Observer.
func (g guarded) ObserveDriver(method string, err error, d time.Duration) {
	defer g.recovered()
	g.observer.ObserveDriver(method, err, d)
}

// ObserveRollout implements Observer.
func (g guarded) ObserveRollout(status agl.RolloutStatus, mode agl.Mode, d time.Duration) {
	defer g.recovered()
	g.observer.ObserveRollout(status, mode, d)
}
