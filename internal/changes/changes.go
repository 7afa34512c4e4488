// Package changes follows what changes in a store, also in one that does not tell.
package changes

import (
	"context"
	"iter"
	"time"

	"github.com/agl-go/agl"
)

// Interval is how often the reader of a store without events looks for itself.
const Interval = 100 * time.Millisecond

// Follow is Store.Events. A store that does not implement it gives a reset, upon which a
// reader reads anew, at once and every [Interval], until ctx ends with its error.
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
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for yield(agl.Event{Kind: agl.EventReset}, nil) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			yield(agl.Event{}, ctx.Err())
			return
		}
	}
}
