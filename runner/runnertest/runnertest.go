// Package runnertest runs runners beside a test. It must not know what they are
// tested with.
package runnertest

import (
	"context"
	"sync"
	"testing"

	"github.com/agl-go/agl/runner"
)

// Serve runs runners until the test is over, and fails it when they fail.
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
