package store

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// Observer measures what a Store does. Its methods are called often and must return
// at once.
type Observer interface {
	// ObserveStore reports a call of a Store method, by the method's name. QuerySpansJSON is reported as QuerySpans: it is
	// the same operation, and only the form of its result differs.
	ObserveStore(method string, err error, d time.Duration)
	// ObserveDriver reports a call of a driver's Load, Claim, Apply or Ping.
	ObserveDriver(method string, err error, d time.Duration)
	// ObserveRollout reports that a rollout has finished, d after its start.
	ObserveRollout(status agl.RolloutStatus, mode agl.Mode, d time.Duration)
}

// panicObserver recovers the panics of an Observer, so that they do not fail the operation that it observes.
type panicObserver struct {
	observer Observer
	log      *slog.Logger
}

func (o panicObserver) recovered() {
	if v := recover(); v != nil {
		o.log.Error("an observer panicked", "panic", v, "stack", string(debug.Stack()))
	}
}

// ObserveStore implements Observer.
func (o panicObserver) ObserveStore(method string, err error, d time.Duration) {
	defer o.recovered()
	o.observer.ObserveStore(method, err, d)
}

// ObserveDriver implements Observer.
func (o panicObserver) ObserveDriver(method string, err error, d time.Duration) {
	defer o.recovered()
	o.observer.ObserveDriver(method, err, d)
}

// ObserveRollout implements Observer.
func (o panicObserver) ObserveRollout(status agl.RolloutStatus, mode agl.Mode, d time.Duration) {
	defer o.recovered()
	o.observer.ObserveRollout(status, mode, d)
}

// ObserveCall implements CallObserver.
func (o panicObserver) ObserveCall(version string, promptTokens, replyTokens int64) {
	if calls, ok := o.observer.(CallObserver); ok {
		defer o.recovered()
		calls.ObserveCall(version, promptTokens, replyTokens)
	}
}

// observedTx reports the calls of a transaction.
type observedTx struct {
	driver.Tx

	observer Observer
}

func observed(o Observer, method string, call func() error) error {
	start := time.Now()
	err := call()
	o.ObserveDriver(method, err, time.Since(start))
	return err
}

func (t observedTx) Load(ctx context.Context, want *driver.LoadParams, got *driver.Loaded) error {
	return observed(t.observer, "Load", func() error { return t.Tx.Load(ctx, want, got) })
}

func (t observedTx) Claim(ctx context.Context, limit int, got *driver.Loaded) (claimed []string, err error) {
	err = observed(t.observer, "Claim", func() (err error) {
		claimed, err = t.Tx.Claim(ctx, limit, got)
		return err
	})
	return claimed, err
}

func (t observedTx) Apply(ctx context.Context, changes *driver.Changes) error {
	return observed(t.observer, "Apply", func() error { return t.Tx.Apply(ctx, changes) })
}
