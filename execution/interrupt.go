package execution

import (
	"context"
	"errors"
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

// Is makes an interrupt match context.Canceled, since it is the cause of a cancelled context.
func (e *InterruptError) Is(target error) bool { return target == context.Canceled }

// ExitCode returns 128 plus the number of the signal, as in shells.
func (e *InterruptError) ExitCode() int {
	if s, ok := e.Signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 1
}

// forceKey is the context key of a context that ends at the second signal.
type forceKey struct{}

// NotifyContext returns a context that ends at the first SIGINT, SIGTERM, or SIGHUP, which says that the terminal was closed
// (nohup has it ignored), with an [*InterruptError] as its cause.
// Strategies then stop their parts gently; a second signal makes them kill what is left and return within a
// second. The returned function stops listening for signals and cancels the context.
func NotifyContext(parent context.Context) (context.Context, context.CancelFunc) {
	force, kill := context.WithCancel(context.WithoutCancel(parent))
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, forceKey{}, force))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	quit := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		for n := range 2 {
			select {
			case s := <-signals:
				if n == 0 {
					cancel(&InterruptError{Signal: s})
				} else {
					kill()
				}
			case <-quit:
				return
			}
		}
	})
	stop := sync.OnceFunc(func() {
		signal.Stop(signals)
		close(quit)
		listening.Wait()
		cancel(context.Canceled)
	})
	return ctx, stop
}

// Forced returns a channel that is closed by a second signal; nil if ctx does not come from [NotifyContext].
func Forced(ctx context.Context) <-chan struct{} {
	force, ok := ctx.Value(forceKey{}).(context.Context)
	if !ok {
		return nil
	}
	return force.Done()
}

// CleanupContext returns a context for cleaning up after ctx has ended: it
// outlives ctx, lasts for d, and ends early with a second signal (see
// [NotifyContext]).
func CleanupContext(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	force, ok := ctx.Value(forceKey{}).(context.Context)
	if !ok {
		return c, cancel
	}
	stop := context.AfterFunc(force, cancel)
	return c, func() { stop(); cancel() }
}

// ExitCode returns the exit status for a main package after a run: 0 for nil, 128 plus the signal's number for an
// interrupt (130 for Ctrl-C), 1 for any other error.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if interrupt, ok := errors.AsType[*InterruptError](err); ok {
		return interrupt.ExitCode()
	}
	return 1
}
