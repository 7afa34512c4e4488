// Package background runs goroutines that their starter stops and waits for, and has the non-blocking operations on their channels.
//
//	stop := background.Start(ctx, watcher.Run)
//	defer stop()
package background

import (
	"context"
	"sync"
)

// Start calls do in a goroutine. stop ends its context, and returns when do has returned; it must be called.
func Start(ctx context.Context, do func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { do(ctx) })
	return func() { cancel(); running.Wait() }
}

// Until returns a context that also ends when end is closed. stop ends it, too, and must be called.
func Until(ctx context.Context, end <-chan struct{}) (until context.Context, stop func()) {
	until, cancel := context.WithCancel(ctx)
	return until, Start(until, func(ctx context.Context) {
		defer cancel()
		select {
		case <-end:
		case <-ctx.Done():
		}
	})
}

// Wake wakes the goroutine that receives from c, now or when it receives next. c has the capacity 1.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Closed reports whether a channel is closed. Nobody may send to it: Closed would receive the value and return true.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
