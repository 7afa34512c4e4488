package main

import (
	"context"
	"errors"

	"github.com/agl-go/agl"
)

// noEvent is an id that no event has. A stream that is to go on after it begins
// with a reset, from which it goes on.
const noEvent = "none"

// follow lists what there is and then calls changed for every change. The place in
// the stream is taken before the listing: what changes meanwhile may be shown
// twice, and never not at all.
func (f storeFlags) follow(
	ctx context.Context, store agl.Store, list func(context.Context) error, changed func(context.Context, agl.Event) error,
) error {
	for event, err := range store.Events(ctx, agl.EventsParams{Since: noEvent}) {
		switch {
		case err != nil:
		case event.Kind == agl.EventReset:
			if err := list(ctx); err != nil {
				return err // names the store itself
			}
		default:
			err = changed(ctx, event)
		}
		if err != nil {
			return f.watchEnded(ctx, err)
		}
	}
	return f.watchEnded(ctx, errors.New("the stream of events has ended"))
}

// watchEnded tells the user's interrupt from a failure.
func (f storeFlags) watchEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return f.errStore(err)
}
