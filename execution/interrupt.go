package execution

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// InterruptError says that a signal ended a run.
type InterruptError struct {
	Signal os.Signal
}

func (e *InterruptError) Error() string { return fmt.Sprintf("interrupted by signal: %v", e.Signal) }

// Is makes an interrupt match context.Canceled, which it is a cause of.
func (e *InterruptError) Is(target error) bool { return target == context.Canceled }

// ExitCode is 128 plus the number of the signal, as shells have it.
func (e *InterruptError) ExitCode() int {
	if s, ok := e.Signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 1
}

type forceKey struct{}

// NotifyContext returns a context that ends at the first SIGINT or SIGTERM,
// with an [*InterruptError] as its cause. Strategies then stop their sides
// gently; a second signal makes them kill what is left and return at once. The
// returned function undoes all of it.
func NotifyContext(parent context.Context) (context.Context, context.CancelFunc) {
	force := make(chan struct{})
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, forceKey{}, (<-chan struct{})(force)))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done, quit := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := range 2 {
			select {
			case s := <-signals:
				if n == 0 {
					cancel(&InterruptError{Signal: s})
				} else {
					close(force)
				}
			case <-quit:
				return
			}
		}
	}()
	stop := sync.OnceFunc(func() {
		signal.Stop(signals)
		close(quit)
		<-done
		cancel(context.Canceled)
	})
	return ctx, stop
}

// forced returns a channel that is closed when the user insists by a second
// signal; nil when ctx does not come from NotifyContext.
func forced(ctx context.Context) <-chan struct{} {
	force, _ := ctx.Value(forceKey{}).(<-chan struct{})
	return force
}

// CleanupContext returns a context for the last words when ctx has ended: it
// outlives ctx, lasts for d, and ends early when the user insists by a second
// signal (see [NotifyContext]).
func CleanupContext(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	force := forced(ctx)
	if force == nil {
		return c, cancel
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-force:
			cancel()
		case <-c.Done():
		}
	}()
	return c, func() { cancel(); <-done }
}
