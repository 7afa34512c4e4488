package access

import (
	"context"
	"sync"
	"time"

	"github.com/agl-go/agl/internal/backoff"
)

// Recheck is how often long requests check that their caller's key is still valid, so that revoking a key ends them
// soon, on every server.
const Recheck = 500 * time.Millisecond

// Watch returns a context that is cancelled once gone returns an error, with that error as its cause. gone is called
// every Recheck until stop is called; a nil gone never cancels.
func Watch(ctx context.Context, gone func(ctx context.Context) error) (watched context.Context, stop func()) {
	if gone == nil {
		return ctx, func() {}
	}
	watched, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for backoff.Sleep(watched, Recheck) == nil {
			if err := gone(watched); err != nil {
				cancel(err)
				return
			}
		}
	})
	return watched, func() {
		cancel(nil)
		watching.Wait()
	}
}
