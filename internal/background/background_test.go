package background_test

import (
	"context"
	"testing"

	"github.com/agl-go/agl/internal/background"
)

func TestStart(t *testing.T) {
	t.Parallel()
	ended := false
	stop := background.Start(t.Context(), func(ctx context.Context) {
		<-ctx.Done()
		ended = true
	})
	stop()
	if !ended {
		t.Error("stop has not waited")
	}
	stop() // does nothing
}

func TestUntil(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	ctx, stop := background.Until(t.Context(), end)
	if ctx.Err() != nil || background.Closed(end) {
		t.Error("it has ended before the channel is closed")
	}
	close(end)
	<-ctx.Done()
	stop()
	if !background.Closed(end) {
		t.Error("the channel is closed")
	}
	ctx, stop = background.Until(t.Context(), make(chan struct{}))
	stop()
	if ctx.Err() == nil {
		t.Error("stop has not ended it")
	}
}
