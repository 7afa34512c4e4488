package access

import (
	"context"
	"sync"
	"time"
)

// Recheck is how often requests that stay open look whether their caller may still be here: a
// key that is revoked ends them soon, at every server.
const Recheck = 500 * time.Millisecond

// Watch returns a context that ends when gone returns why the caller of a request may no longer
// be here, with this cause. gone is asked every Recheck until stop is called; nil is never.
func Watch(ctx context.Context, gone func(ctx context.Context) error) (watched context.Context, stop func()) {
	if gone == nil {
		return ctx, func() {}
	}
	watched, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(Recheck)
		defer ticker.Stop()
		for {
			select {
			case <-watched.Done():
				return
			case <-ticker.C:
			}
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
