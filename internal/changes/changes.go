// Package changes follows the changes in a store, also in a store without events.
package changes

import (
	"context"
	"iter"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
)

// interval is how often a reader of a store without events reads again.
const interval = 100 * time.Millisecond

// Follow yields the events of a store, as Store.Events does. For a store that does not implement
// it, it yields a reset, on which a reader reads everything again: at once and every interval,
// until ctx ends. Then it yields the error of ctx.
func Follow(ctx context.Context, store agl.Store, p agl.EventsParams) iter.Seq2[agl.Event, error] {
	return func(yield func(agl.Event, error) bool) {
		for event, err := range store.Events(ctx, p) {
			if agl.ErrorCode(err) == agl.CodeUnimplemented {
				poll(ctx, yield)
				return
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

func poll(ctx context.Context, yield func(agl.Event, error) bool) {
	for yield(agl.Event{Kind: agl.EventReset}, nil) {
		if backoff.Sleep(ctx, interval) != nil {
			yield(agl.Event{}, ctx.Err())
			return
		}
	}
}
