// Package runnertest runs runners in the background of a test.
package runnertest

import (
	"context"
	"sync"
	"testing"

	"github.com/agl-go/agl/runner"
)

// Serve starts a runner that runs until the test ends, and fails the test if Run returns an error.
func Serve(tb testing.TB, cfg runner.Config) {
	tb.Helper()
	r, err := runner.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			tb.Errorf("runner: %v", err)
		}
	})
	tb.Cleanup(func() {
		stop()
		wg.Wait()
	})
}
